"""Layers derived from `keras.layers.Embedding`, and layers whose whole tables are used."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.beside_keras import train_beside_keras
from tests.models import TaskOf, functional, run
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model import embedding_layers
from tfps.model.stateless_model import StatelessModel


class Scaled(keras.layers.Embedding):
    """Does something with the rows that Keras's own layer gives."""

    def __init__(self, *args, factor=3.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor = factor

    def call(self, inputs):
        return self.factor * super().call(inputs)

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class OwnLookup(keras.layers.Embedding):
    """Asks its table itself."""

    def call(self, inputs):
        return keras.ops.take(self.embeddings, inputs, axis=0)


class Tied(keras.Model):
    """Every way to derive an embedding layer and to use its table once more."""

    def __init__(self):
        super().__init__(name="all")
        self.scaled = Scaled(10, 4, name="scaled")
        self.untied = keras.layers.ReversibleEmbedding(10, 3, tie_weights=False, name="untied")
        self.reversible = keras.layers.ReversibleEmbedding(10, 3, name="reversible")
        self.tied = keras.layers.Embedding(10, 3, embeddings_regularizer="l2", name="tied")
        self.own = OwnLookup(10, 4, name="own")
        self.dense = keras.layers.Dense(1, name="dense")

    def call(self, inputs):
        ids, x = inputs["id"], inputs["x"]
        parts = [
            self.scaled(ids),
            self.scaled((ids + 1) % 10),
            self.untied(x + self.untied(ids), reverse=True),
            self.reversible(x + self.reversible(ids), reverse=True),
            keras.ops.matmul(x + self.tied(ids), keras.ops.transpose(self.tied.embeddings)),
            self.own(ids),
        ]
        return self.dense(keras.ops.concatenate(parts, axis=-1))


def batches():
    drawn = np.random.default_rng(5)
    return [
        (
            {
                "id": tf.constant(drawn.integers(0, 10, 4)),
                "x": tf.constant(drawn.normal(size=(4, 3)), tf.float32),
            },
            tf.constant(drawn.normal(size=4), tf.float32),
        )
        for _ in range(4)
    ]


@pytest.mark.slow
def test_every_parameter_ends_where_keras_has_it(caplog):
    trained = train_beside_keras(TaskOf(Tied), batches())
    assert sorted(table.name for table in trained.model.tables) == [
        "all/scaled/embeddings",
        "all/untied/embeddings",
    ]
    for name in ("reversible", "tied", "own"):
        line = f"layer 'all/{name}': the model uses its whole table"
        assert caplog.text.count(line) == 1
    assert caplog.text.count("each step pulls and pushes all its 1") == 3
    assert len(trained.theirs) == 8
    for path, value in trained.theirs.items():
        np.testing.assert_allclose(trained.ours[path], value, atol=2e-6, err_msg=path)


class Softmax(keras.Model):
    """Uses its whole table in the loss alone."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(10, 3, name="table")

    def call(self, inputs):
        return inputs["x"] + self.table(inputs["id"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        logits = keras.ops.matmul(y_pred, keras.ops.transpose(self.table.embeddings))
        return keras.ops.mean(keras.ops.logsumexp(logits, axis=-1))


class OfTheModel(TaskOf):
    """Leaves the loss to the model."""

    loss = Task.loss


@pytest.mark.slow
def test_a_whole_table_may_be_used_in_the_loss_alone():
    model = StatelessModel(OfTheModel(Softmax), 0)
    assert model.tables == []
    [table] = model.dense
    assert table.path == "softmax/table/embeddings"


def test_a_table_larger_than_may_travel_with_every_step_is_refused(monkeypatch):
    monkeypatch.setattr(embedding_layers, "_WHOLE_BYTES", 10 * 3 * 4 - 1)
    message = (
        "'softmax/table': the model uses its whole table .*sampled softmax.* "
        "train.dense_table_bytes=120$"
    )
    with pytest.raises(UserError, match=message):
        StatelessModel(OfTheModel(Softmax), 0)
    model = StatelessModel(OfTheModel(Softmax), 0, dense_table_bytes=120)
    assert [each.path for each in model.dense] == ["softmax/table/embeddings"]


def of_config(model):
    return keras.Model.from_config(model.get_config(), custom_objects={"Scaled": Scaled})


@pytest.mark.parametrize(
    ("again", "kind"),
    [(keras.models.clone_model, Scaled), (of_config, keras.layers.Embedding)],
)
def test_a_model_made_of_another_has_tables_of_its_own(again, kind):
    model = StatelessModel(TaskOf(lambda: again(functional(kind)())), 0)
    [table] = model.tables
    assert (table.rows, table.dim) == (10, 4)
    ones, zeros = run(model, [tf.ones([6, 4])]), run(model, [tf.zeros([6, 4])])
    factor = 3.0 if kind is Scaled else 1.0
    moved = np.full((6, 1), factor * model.initial_dense[:7][:4].sum())
    np.testing.assert_allclose(ones.outputs - zeros.outputs, moved, atol=1e-5)


def test_weights_from_a_file_reach_the_table_and_what_its_class_has_besides(tmp_path):
    def untied():
        id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((3,), name="x")
        layer = keras.layers.ReversibleEmbedding(10, 3, tie_weights=False, name="untied")
        return keras.Model([id_in, x], layer(x + layer(id_in), reverse=True))

    def loaded():
        model = untied()
        model.load_weights(path)
        return model

    def given():
        model = untied()
        model.get_layer("untied").set_weights([rows, reverse])
        return model

    drawn = np.random.default_rng(1)
    rows, reverse = drawn.normal(size=(10, 3)), drawn.normal(size=(3, 10))
    path = str(tmp_path / "all.weights.h5")
    plain = untied()
    plain.set_weights([rows, reverse])
    plain.save_weights(path)
    for make in (loaded, given):
        model = StatelessModel(TaskOf(make), 0)
        [table] = model.tables
        np.testing.assert_allclose(table.initializer((10, 3)), rows, rtol=1e-6)
        np.testing.assert_allclose(model.initial_dense, reverse.ravel(), rtol=1e-6)
