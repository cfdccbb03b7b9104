import numpy as np

from tfps.evaluation.metrics import EvaluatedPiece


def result(records, name):
    labels = {"click": np.arange(records), "text": np.array([name] * records, object)}
    predictions = {"p": np.full([records, 2], 0.25, np.float32)}
    return EvaluatedPiece(records * 0.5, labels, predictions, {"norm": np.array([1.5, records])})


def test_results_arrive_as_they_were_sent():
    sent = [result(3, b"a\x00"), result(1, b"")]
    received = EvaluatedPiece.unpack(EvaluatedPiece.pack(sent))
    assert [each.loss_sum for each in received] == [1.5, 0.5]
    for mine, theirs in zip(sent, received, strict=True):
        for some, other in zip(mine[1:], theirs[1:], strict=True):
            assert list(some) == list(other)
            for name in some:
                assert some[name].dtype == other[name].dtype
                np.testing.assert_array_equal(some[name], other[name])


def test_a_replica_without_shards_sends_none():
    assert EvaluatedPiece.unpack(EvaluatedPiece.pack([])) == []
