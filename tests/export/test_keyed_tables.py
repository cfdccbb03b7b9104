"""Tables without vocabularies in an exported model: found by whoever loads it, however it does."""

import gc
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.export.graph_alone import graph_alone
from tests.export.test_saved_model import LOAD
from tests.training_fixtures import Trainer, dataset
from tests.worker.test_keyed_modes import IDS, Tokens
from tfps.errors import UserError
from tfps.export.keyed_slices import NO_KEY, NOWHERE, places_of
from tfps.export.loaded_model import ExportedModel
from tfps.export.sliced_variables import RowEncoding

FORMS = {"float32": {}, "int8": {"encoding": RowEncoding("int8")}}
ASKED = [7, NO_KEY, -5, 3]


class Places(tf.Module):
    """What of a SavedModel finds keys."""

    def __init__(self):
        super().__init__()
        shape = tf.TensorShape([None])
        self.hashes = tf.Variable(tf.zeros([0], tf.int64), trainable=False, shape=shape)
        self.table = places_of(self.hashes)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def of(self, hashes):
        return {"places": self.table.lookup(hashes)}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


@pytest.fixture(scope="module")
def trainer(manifest):
    trainer = Trainer(manifest, Tokens(rule=keras.optimizers.Adagrad(0.1), has_keys=True), parts=3)
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_tensorflow_alone_predicts_what_the_parameters_do(trainer, tmp_path, form):
    path = tmp_path / "export"
    trainer.export(path, **FORMS[form])
    expected = trainer.evaluate().predictions["predictions"]
    atol = 1e-6 if form == "float32" else 0.01
    source, _ = trainer.shards()[0]
    command = [sys.executable, "-c", LOAD, str(path), source.path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    by_example, by_feature = json.loads(printed.stdout)
    assert by_example == by_feature
    np.testing.assert_allclose(by_example, expected, rtol=0, atol=atol)
    records = [record.numpy() for record in tf.data.TFRecordDataset(source.path)]
    with graph_alone(path) as served:
        found = served.predict("serving_examples", records)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.slow
def test_a_model_that_was_loaded_can_be_saved_and_loaded_again(trainer, tmp_path):
    trainer.export(tmp_path / "export")
    table = trainer.model.tables[0].name
    first = ExportedModel.load(str(tmp_path / "export"))
    loaded = tf.saved_model.load(tmp_path / "export")
    tf.saved_model.save(loaded, tmp_path / "again", signatures=loaded.signatures)
    again = tf.saved_model.load(tmp_path / "again")
    ids = tf.constant(IDS, tf.int64)
    np.testing.assert_array_equal(again.rows[0](ids), first.rows(table, IDS))


@pytest.mark.slow
def test_versions_in_one_process_know_their_own_keys(trainer, tmp_path):
    trainer.export(tmp_path / "trained")
    manifest = trainer.manifest
    untrained = Trainer(manifest, Tokens(has_keys=True), parts=1)
    untrained.export(tmp_path / "untrained")
    table = trainer.model.tables[0].name
    versions = [ExportedModel.load(str(tmp_path / name)) for name in ("trained", "untrained")]
    expected = trainer.store.read_rows(0, IDS)
    assert np.abs(expected).max() > 1e-3
    for _ in range(2):
        np.testing.assert_array_equal(versions[0].rows(table, IDS), expected)
        same = ExportedModel.load(str(tmp_path / "trained"))
        np.testing.assert_array_equal(same.rows(table, IDS), expected)
        del same
        gc.collect()
    # Of a table that has no key.
    np.testing.assert_array_equal(versions[1].rows(table, IDS), np.zeros_like(expected))


@pytest.mark.slow
def test_what_finds_keys_counts_as_memory_too(trainer, tmp_path, monkeypatch):
    trainer.export(tmp_path / "export")
    path = str(tmp_path / "export")
    held = ExportedModel.load(path).variable_bytes
    hashes = sum(
        shape[0]
        for name, shape in tf.train.list_variables(f"{path}/variables/variables")
        if name.startswith("slices/") and len(shape) == 1
    )
    assert hashes == 20 + 10 + 1  # of two tables in a group, and one behind the last
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: held - 1)
    with pytest.raises(UserError, match="its variables take"):
        ExportedModel.load(path)
    monkeypatch.setattr("tfps.export.loaded_model.BYTES_PER_KEY", 0)
    assert ExportedModel.load(path).variable_bytes == held - 64 * hashes


@pytest.mark.parametrize(
    ("hashes", "places"),
    [
        ([NO_KEY], [NOWHERE] * 4),
        ([-5, 3, NO_KEY], [NOWHERE, NOWHERE, 0, 1]),
        ([-5, 7, NO_KEY, NO_KEY], [1, 2, 0, NOWHERE]),
    ],
    ids=["none", "some", "the greatest"],
)
def test_every_hash_may_be_a_keys(tmp_path, hashes, places):
    module = Places()
    module.hashes.assign(hashes)
    tf.saved_model.save(module, tmp_path / "model", signatures=module.of.get_concrete_function())
    loaded = tf.saved_model.load(tmp_path / "model")
    assert loaded.of(tf.constant(ASKED, tf.int64))["places"].numpy().tolist() == places
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "model"))
        signature = graph.signature_def["serving_default"]
        [given], [answer] = signature.inputs.values(), signature.outputs.values()
        found = session.run(answer.name, {given.name: ASKED})
    assert found.tolist() == places
