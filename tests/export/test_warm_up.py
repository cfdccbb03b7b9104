"""What a server is to send to a model before it answers anybody."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tests.training_fixtures import dataset, reused
from tfps.data.feature import Feature
from tfps.export.exported_files import EXAMPLES_SIGNATURE, FEATURES_SIGNATURE, WARM_UP_FILE
from tfps.export.versions import write_warm_up

MOST_REQUESTS = 1000  # that TensorFlow Serving takes


def requests(directory):
    records = tf.data.TFRecordDataset(str(directory / WARM_UP_FILE)).as_numpy_iterator()
    return [PredictionLog.FromString(record).predict_log.request for record in records]


def inputs(request):
    return {name: tf.constant(tf.make_ndarray(x)) for name, x in request.inputs.items()}


@pytest.mark.quick("0")
@pytest.mark.parametrize("whole_bytes", [0, 1 << 30])
def test_the_exported_model_answers_them_alike_by_feature_and_by_example(tmp_path, whole_bytes):
    trainer = reused(dataset(tmp_path / "data", records=200, shards=1), parts=3)
    trainer.export(tmp_path / "export", whole_bytes=whole_bytes)
    found = requests(tmp_path / "export")
    assert [each.model_spec.signature_name for each in found] == [
        FEATURES_SIGNATURE,
        EXAMPLES_SIGNATURE,
    ] * 2
    assert len(found) <= MOST_REQUESTS
    model = tf.saved_model.load(str(tmp_path / "export"))
    answers = [
        model.signatures[each.model_spec.signature_name](**inputs(each))["predictions"].numpy()
        for each in found
    ]
    assert [len(answer) for answer in answers] == [1, 1, 32, 32]
    np.testing.assert_allclose(answers[0], answers[1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(answers[2], answers[3], rtol=0, atol=1e-6)


def test_values_of_every_kind(tmp_path):
    features = [
        Feature("id", "int64", (), 10),
        Feature("vector", "float32", (2, 2)),
        Feature("tokens", "int64", (None,), 5),
        Feature("name", "string"),
    ]
    records = {
        "id": tf.constant([7, 2], tf.int64),
        "vector": tf.reshape(tf.range(8.0), [2, 2, 2]),
        "tokens": tf.ragged.constant([[1, 2], []], dtype=tf.int64),
        "name": tf.constant(["\xff", "y"]),
    }
    write_warm_up(str(tmp_path), features, records)
    one, one_example, both, both_examples = map(inputs, requests(tmp_path))
    assert {name: x.numpy().tolist() for name, x in one.items()} == {
        "id": [7],
        "vector": [[[0, 1], [2, 3]]],
        "tokens": [1, 2],
        "tokens_row_lengths": [2],
        "name": ["\xff".encode()],
    }
    assert both["tokens_row_lengths"].numpy().tolist() == [2, 0]
    assert both_examples["examples"].shape == (2,)
    assert one_example["examples"][0] == both_examples["examples"][0]
