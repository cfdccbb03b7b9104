"""In every mode each trained record is judged once, by parameters of before its push."""

import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer, dataset
from tests.worker.test_barrier_loop import Plain, barrier_of, steps_of
from tfps.evaluation.progressive import BINS, Judged
from tfps.experiment.mode import Async, Bounded, LocalSGD, Sync
from tfps.worker.closures import LeaseResult

RECORDS, BATCH = 203, 10


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=RECORDS, shards=1)


def trained(trainer):
    source, count = trainer.shards()[0]
    found = trainer.closures.train(source.pack(), tf.constant([0, count, 3, 0], tf.int64))
    return LeaseResult.unpack(found.numpy())


def counts_of(trainer, result):
    return Judged.nothing(trainer.step.judged).plus(result.judged)


MODES = {
    "async": {"mode": Async()},
    "ahead": {"mode": Async(), "pipeline_depth": 2, "unroll": 3},
    "exchange": {"mode": Async(batches_per_exchange=4), "unroll": 4},
    "local_sgd": {"mode": LocalSGD(sync_every=4)},
    "bad records": {"mode": Async(), "max_bad_records": 1},
}


@pytest.mark.quick("ahead")
@pytest.mark.parametrize("mode", MODES)
def test_each_record_is_judged_once(manifest, mode):
    trainer = Trainer(manifest, judges=True, batch_size=BATCH, **MODES[mode])
    judged = counts_of(trainer, trained(trainer))
    assert judged.counts[0, : 2 * BINS].sum() == RECORDS
    again = counts_of(trainer, trained_again(trainer))
    assert again.counts[0, : 2 * BINS].sum() == RECORDS  # not those of the lease before


def trained_again(trainer):
    trainer.progress.clear({0: 0})
    return trained(trainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"mode": Sync(), "members": 1}, {"mode": Bounded(max_staleness=2), "members": 1}],
    ids=["sync", "bounded"],
)
def test_so_it_is_where_workers_wait(manifest, settings):
    trainer = Trainer(manifest, judges=True, batch_size=BATCH, **settings)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0])
        closure = begin(0, count=RECORDS)
        assert steps_of(closure) == (1, -(-RECORDS // BATCH))
    judged = counts_of(trainer, LeaseResult.unpack(closure.result().numpy()))
    assert judged.counts[0, : 2 * BINS].sum() == RECORDS


def test_predictions_are_those_of_before_the_push(manifest):
    options = {"batch_size": RECORDS, "shuffle_buffer": 0}
    trainer = Trainer(manifest, judges=True, task=Plain(), **options)
    before = trainer.evaluate()
    [prediction] = before.predictions.values()
    [name] = trainer.step.judged
    judged = counts_of(trainer, trained(trainer))
    labels = before.labels[name].reshape(-1)
    expected = np.mean(-np.log(np.where(labels == 1, prediction, 1 - prediction).reshape(-1)))
    assert judged.metrics()["log_loss"] == pytest.approx(float(expected), rel=1e-5)
    [after] = trainer.evaluate().predictions.values()
    assert np.abs(after - prediction).max() > 1e-4


@pytest.mark.slow
def test_without_a_judge_nothing_is_counted(manifest):
    trainer = Trainer(manifest, batch_size=BATCH)
    assert trained(trainer).judged.size == 0
