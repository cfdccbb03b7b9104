"""Tables whose rows are given, by arrays and files of weights, and tables that are not trained."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import TaskOf, functional
from tests.training_fixtures import Trainer
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.experiment.mode import Async, LocalSGD
from tfps.export.loaded_model import ExportedModel
from tfps.model.stateless_model import StatelessModel
from tfps.store.group_layout import AskedIds
from trainer.datasets.generation import generate

ROWS, DIM = 50, 4
MATRIX = np.random.default_rng(5).standard_normal((ROWS, DIM)).astype("f4")
FEATURES = (Feature("id", "int64", (), ROWS), Feature("x", "float32", (3,)))


def tables(model):
    """The initial rows of a model's tables, as the ps are given them."""
    return [table.initializer((table.rows, table.dim)).numpy() for table in model.tables]


def pretrained():
    """A model of plain Keras with rows of its own."""
    model = given_afterwards()
    model.layers[-1].kernel.assign(np.arange(7.0)[:, np.newaxis])
    return model


def given_afterwards():
    model = functional(rows=ROWS)()
    model.get_layer("table").set_weights([MATRIX])
    return model


def test_rows_are_given_as_keras_takes_them(tmp_path):
    theirs = pretrained()
    weights, whole = str(tmp_path / "kept.weights.h5"), str(tmp_path / "kept.keras")
    theirs.save_weights(weights)
    theirs.save(whole)

    def from_weights():
        model = functional(rows=ROWS)()
        model.load_weights(weights)
        return model

    kernel = theirs.layers[-1].kernel.numpy()
    for build, has_kernel in (
        (functional(rows=ROWS, weights=MATRIX), False),
        (given_afterwards, False),
        (from_weights, True),
        (lambda: keras.saving.load_model(whole), True),
    ):
        model = StatelessModel(TaskOf(build, FEATURES), seed=0)
        assert [table.name for table in model.tables] == ["table/embeddings"]
        np.testing.assert_array_equal(tables(model), [MATRIX])
        is_equal = np.array_equal(model.initial_dense[: kernel.size], kernel.ravel())
        assert is_equal == has_kernel


def test_rows_stay_what_they_were_when_they_were_given():
    changing = MATRIX.copy()

    def build():
        model = functional(rows=ROWS, weights=changing)()
        changing[:] = 0
        return model

    np.testing.assert_array_equal(tables(StatelessModel(TaskOf(build), seed=0)), [MATRIX])


def test_rows_of_another_shape_are_refused():
    build = functional(rows=ROWS, weights=MATRIX[1:])
    message = r"'table/embeddings' is given rows of the shape \[49, 4\], but it has 50 rows of 4"
    with pytest.raises(UserError, match=message):
        StatelessModel(TaskOf(build), seed=0)


@dataclasses.dataclass(frozen=True)
class Frozen(TaskOf):
    """Rows that are given and stay, beside others that are trained."""

    def optimizer(self):
        return keras.optimizers.AdamW(0.01, weight_decay=0.1)


def two_tables():
    id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((3,), name="x")
    given = keras.layers.Embedding(ROWS, DIM, name="given", weights=MATRIX, trainable=False)
    free = keras.layers.Embedding(ROWS, DIM, name="free")
    hidden = keras.layers.Concatenate()([given(id_in), free(id_in), x])
    return keras.Model([x, id_in], keras.layers.Dense(1)(hidden))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    task = Frozen(two_tables, FEATURES)
    return generate(Experiment("given", task), str(tmp_path_factory.mktemp("data")), 400, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [Async(), pytest.param(LocalSGD(sync_every=2), marks=pytest.mark.slow)], ids=str
)
def test_a_frozen_table_stays_while_the_others_are_trained(manifest, tmp_path, mode):
    trainer = Trainer(manifest, Frozen(two_tables, FEATURES), mode=mode)
    before = trainer.store.read_table(1)
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    np.testing.assert_array_equal(trainer.store.read_table(0), MATRIX)
    assert np.abs(trainer.store.read_table(1) - before).max() > 0.01
    trainer.export(tmp_path / "export")
    _, ours, _ = trainer.step.predict(batch(), {"label": tf.zeros([2])})
    found = ExportedModel.load(str(tmp_path / "export")).predict(batch())
    np.testing.assert_allclose(found["predictions"], ours["predictions"], atol=1e-6)


def test_nothing_is_sent_of_a_frozen_table(manifest):
    store = Trainer(manifest, Frozen(two_tables, FEATURES)).store
    (frozen, _), (free, _) = store.layout.group_of
    for index, count in ((frozen, 0), (free, 2)):
        group = store.groups[index]
        sent = group.send(group.pull(AskedIds(tf.constant([3, 49]))), tf.ones([2, DIM]))
        assert sum(int(tf.size(each.rows)) for each in sent) == count


def batch():
    return {"id": tf.constant([3, 49], tf.int64), "x": tf.ones([2, 3])}
