import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.data.example_records import UNSET, example, value
from tests.export.graph_alone import graph_alone
from tests.models import TaskOf, functional
from tests.training_fixtures import Trainer, dataset, reused
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export.exported_files import SCHEMA_FILE
from tfps.export.loaded_model import ExportedModel
from tfps.export.sliced_variables import RowEncoding
from trainer.serving.question import check_examples

# Run without tfps, configs and Keras: what serves the model has none of them.
LOAD = """
import sys
for name in ("tfps", "trainer", "configs", "keras"):
    sys.modules[name] = None
import json
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
records = tf.constant([r.numpy() for r in tf.data.TFRecordDataset(sys.argv[2])])
parsed = tf.io.parse_example(
    records,
    {
        "numbers": tf.io.FixedLenFeature([4], tf.float32),
        "token": tf.io.FixedLenFeature([], tf.int64),
    },
)
by_example = model.signatures["serving_examples"](examples=records)["predictions"]
by_feature = model.signatures["serving_default"](**parsed)["predictions"]
print(json.dumps([by_example.numpy().tolist(), by_feature.numpy().tolist()]))
"""


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


def test_the_exported_model_predicts_what_the_evaluation_did_with_tensorflow_alone(
    manifest, tmp_path
):
    trainer = reused(manifest, parts=3)
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    path = tmp_path / "export"
    for _ in range(2):  # the second replaces the first
        trainer.export(path)
    expected = trainer.evaluate().predictions["predictions"]

    source, _ = trainer.shards()[0]
    command = [sys.executable, "-c", LOAD, str(path), source.path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    by_example, by_feature = json.loads(printed.stdout)
    np.testing.assert_allclose(by_example, expected, rtol=0, atol=1e-6)
    assert by_example == by_feature
    assert [each.name for each in tmp_path.iterdir()] == ["export"]


@pytest.mark.quick("form0")
@pytest.mark.parametrize("form", [{}, {"whole_bytes": 0}, {"encoding": RowEncoding("int8")}])
def test_what_loads_no_more_than_the_graph_predicts_the_same(manifest, tmp_path, form):
    trainer = reused(manifest)
    path = tmp_path / "export"
    trainer.export(path, **form)
    source, _ = trainer.shards()[0]
    records = [record.numpy() for record in tf.data.TFRecordDataset(source.path).take(50)]
    loaded = tf.saved_model.load(path).signatures["serving_examples"]
    expected = loaded(examples=tf.constant(records))["predictions"]
    with graph_alone(path) as served:
        found = served.predict("serving_examples", records)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_schema_stands_beside_the_model(manifest, tmp_path):
    trainer = reused(manifest)
    trainer.export(tmp_path / "export")
    schema = json.loads((tmp_path / "export" / SCHEMA_FILE).read_text())
    assert schema["features"] == [feature.schema() for feature in trainer.task.features()]
    assert schema["labels"] == [trainer.task.label().schema()]
    signatures = tf.saved_model.load(tmp_path / "export").signatures
    assert set(schema["signatures"]) == set(signatures)
    for name, takes in schema["signatures"].items():
        inputs = signatures[name].structured_input_signature[1]
        assert (takes == "examples") == (set(inputs) == {"examples"})


def test_a_model_that_is_larger_than_the_memory_of_the_process_is_refused(
    manifest, tmp_path, monkeypatch
):
    reused(manifest).export(tmp_path / "export")
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: 100)
    with pytest.raises(UserError, match=r"its variables take [\d.]+ K?i?B, and .* may have 100 B"):
        ExportedModel.load(str(tmp_path / "export"))


@pytest.mark.slow
def test_its_files_hold_each_variable_once(manifest, tmp_path):
    trainer = reused(manifest)
    for whole_bytes in (0, 1 << 30):
        path = tmp_path / str(whole_bytes)
        trainer.export(path, whole_bytes=whole_bytes)
        found = tf.train.list_variables(str(path / "variables" / "variables"))
        held = [name for name, shape in found if shape]
        model = trainer.model
        seeds = 1  # of the dropout
        assert len(held) == len(model.dense) + len(model.state) + len(model.tables) + seeds


def test_a_record_without_a_value_counts_as_the_default_in_the_export(tmp_path):
    features = Feature("id", "int64", (), 10, default=3), Feature("x", "float32", (3,), default=2.0)
    columns = {"id": [1, 2], "x": np.ones([2, 3])}
    labels = Feature("label", "float32")
    made = tfps.write_dataset(str(tmp_path / "data"), columns, [0.0, 1.0], None, features, labels)
    Trainer(made, TaskOf(functional(), features)).export(tmp_path / "export")
    model = ExportedModel.load(str(tmp_path / "export"))
    assert model.features == features
    model.check_schema(made.features, made.labels, "data")  # whose records have no default
    whole = {"id": value(3), "x": value(2.0, 2.0, 2.0)}
    empty = {"id": value(dtype="int"), "x": value(dtype="float")}
    records = [example(held) for held in (whole, {}, empty, dict.fromkeys(whole, UNSET))]
    [predicted] = model.predict_examples(records).values()
    assert (predicted == predicted[0]).all()
    [of_values] = model.predict({"id": np.array([3]), "x": np.full([1, 3], 2.0, "f4")}).values()
    np.testing.assert_allclose(of_values[0], predicted[0], rtol=1e-6)
    check_examples(records, model.features, True)
