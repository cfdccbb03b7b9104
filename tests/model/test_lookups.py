"""Models whose layers look things up in tables: evaluated, exported, served, refused."""

import dataclasses
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import lookups
from tests.export.graph_alone import graph_alone
from tests.lookups import Lookups, get_config, write_rows
from tests.trainer.one_dataset import prepare
from tests.training_fixtures import inputs_of, reused
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.model.lookup_tables import lookup_tables_taken_over

LOCAL, CLUSTER = Cluster(), Cluster(("h:1",), ("h:2",), ("h:3",))
# Run without tfps, configs and Keras: what serves the model has none of them.
LOAD = """
import sys
for name in ("tfps", "trainer", "tests", "keras"):
    sys.modules[name] = None
import json
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
records = tf.constant([r.numpy() for r in tf.data.TFRecordDataset(sys.argv[2])])
print(json.dumps(model.signatures["serving_examples"](examples=records)["predictions"].numpy().tolist()))
"""


class InLambda(Lookups):
    """Its table is nowhere but in a function."""

    def build_model(self):
        keys, values = tf.constant([7, 11], tf.int64), tf.constant([1, 2], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)
        return _model_of(keras.layers.Lambda(table.lookup, output_shape=()))


class Counting(keras.layers.Layer):
    """Looks up in a table that could change."""

    def __init__(self):
        super().__init__(name="counting")
        self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

    def call(self, codes):
        return tf.ensure_shape(self.seen.lookup(codes), codes.shape)

    def compute_output_spec(self, codes):
        return keras.KerasTensor(codes.shape, "int64")


class WithCounting(Lookups):
    def build_model(self):
        return _model_of(Counting())


class Listed(keras.Model):
    """Of a user's own code, with its layers in a list and a dict."""

    def __init__(self):
        super().__init__()
        self.ways = [keras.layers.StringLookup(vocabulary=["Ulm"]), keras.layers.Embedding(8, 4)]
        self.heads = {"one": keras.layers.Dense(1)}

    def call(self, inputs):
        found = inputs["town"]
        for layer in self.ways:
            found = layer(found)
        return self.heads["one"](found)


class WithLists(Lookups):
    def build_model(self):
        return Listed()


def _model_of(layer):
    code = keras.Input((), name="code", dtype="int64")
    row = keras.layers.Embedding(8, 4)(layer(code))
    return keras.Model({"code": code}, keras.layers.Dense(1)(row))


@pytest.fixture(name="manifest", scope="module")
def manifest_fixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lookups")
    rows = write_rows(directory / "rows.csv", 200)
    return prepare(get_config, [str(rows)], str(directory / "data"), 1)


@pytest.fixture(name="towns", scope="module")
def towns_fixture(tmp_path_factory):
    """A file that the task names."""
    return tmp_path_factory.mktemp("vocabulary") / "towns.txt"


@pytest.mark.slow
@pytest.mark.parametrize("task", [Lookups, pytest.param(WithLists, marks=pytest.mark.slow)])
def test_what_is_exported_has_its_vocabularies_with_it(manifest, towns, tmp_path, task):
    towns.write_text("\n".join(lookups.TOWNS), "utf-8")
    trainer = reused(manifest, task=task(str(towns)))
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    expected = trainer.evaluate().predictions["predictions"]
    assert len(set(np.round(expected, 4))) >= 2
    trainer.export(tmp_path / "export")
    assert [x.name for x in (tmp_path / "export" / "assets").iterdir()] == (
        ["towns.txt"] if task is Lookups else []
    )
    towns.unlink()
    (tmp_path / "export").rename(tmp_path / "elsewhere")
    source, _ = trainer.shards()[0]
    command = [sys.executable, "-c", LOAD, str(tmp_path / "elsewhere"), source.path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    np.testing.assert_allclose(json.loads(printed.stdout), expected, rtol=0, atol=1e-6)
    records = list(tf.data.TFRecordDataset(source.path).as_numpy_iterator())
    with graph_alone(tmp_path / "elsewhere") as served:
        found = served.predict("serving_examples", records)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_closure_brings_its_tables_along(manifest, towns):
    towns.write_text("\n".join(lookups.TOWNS), "utf-8")
    trainer = reused(manifest, task=Lookups(str(towns)))
    assert trainer.model.unreachable == ()
    for closure in (trainer.closures.train, trainer.closures.evaluate):
        captured = closure.get_concrete_function().captured_inputs
        assert not [x for x in captured if "LookupInterface" in str(x)]


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_keys_of_every_kind_are_found_in_a_graph(kind):
    with lookup_tables_taken_over():
        initializer = tf.lookup.KeyValueTensorInitializer([b"b", b"a"], tf.constant([2.0, 1.0]))
        table = tf.lookup.StaticHashTable(initializer, -1.0)
    keys = {
        "dense": tf.constant([["a", "c"], ["b", "a"]]),
        "ragged": tf.ragged.constant([["a"], [], ["c", "b"]]),
        "sparse": tf.sparse.from_dense([["a", ""], ["", "c"]]),
    }[kind]
    found = tf.function(table.lookup, autograph=False)
    assert not found.get_concrete_function(keys).captured_inputs
    for _ in range(2):  # the second finds the table there
        assert str(found(keys)) == str(table.lookup(keys))
    with pytest.raises(TypeError, match="the keys of a lookup are int32, not string"):
        found(tf.constant([1]))


def check(task, manifest, tmp_path, cluster=LOCAL):
    experiment = get_config()
    data = dataclasses.replace(experiment.data, train=manifest.directory)
    experiment = dataclasses.replace(experiment, task=task, data=data)
    return inputs_of(experiment, tmp_path, cluster)


def test_a_model_that_could_not_be_exported_is_refused_before_it_is_trained(manifest, tmp_path):
    with pytest.raises(UserError, match=r"not exported as a SavedModel: .* used by layer 'lambda'"):
        check(InLambda(), manifest, tmp_path)


def test_what_workers_cannot_reach_is_refused_by_name(manifest, tmp_path):
    with pytest.raises(
        UserError,
        match=r"uses seen \(MutableHashTable\) of layer 'counting', which lies in the chief",
    ):
        check(WithCounting(), manifest, tmp_path, CLUSTER)
    check(WithCounting(), manifest, tmp_path)
    for task in (Lookups(), WithLists()):
        assert not check(task, manifest, tmp_path, CLUSTER).plan.model.unreachable
