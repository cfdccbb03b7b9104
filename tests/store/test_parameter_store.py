import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.store.groups import lazy_group
from tests.store.pushes import push
from tests.training_fixtures import train_with
from tfps.data.feature import Feature
from tfps.experiment.task import Table, Task
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules, rule_for
from tfps.store import group_layout
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

BATCH = 32


@dataclasses.dataclass(frozen=True)
class TwoTowers(Task):
    """A shared table, tables of two dimensions, and layers with and without state."""

    optimizer_name: str = "Adagrad"
    dropout: float = 0.0

    def features(self):
        return (
            Feature("user", "int64", (), 50),
            Feature("items", "int64", (3,), 40),
            Feature("x", "float32", (4,)),
        )

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        user = keras.Input((), name="user", dtype="int64")
        items = keras.Input((3,), name="items", dtype="int64")
        x = keras.Input((4,), name="x")
        shared = keras.layers.Embedding(40, 4, name="item")
        parts = [
            keras.layers.Embedding(50, 8, name="user_table")(user),
            keras.layers.Flatten()(shared(items)),
            shared(items[:, 0]),
            keras.layers.Embedding(50, 4, embeddings_initializer="glorot_uniform")(user),
            keras.layers.BatchNormalization()(x),
        ]
        h = keras.layers.Concatenate()(parts)
        h = keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2")(h)
        h = keras.layers.Dropout(self.dropout, seed=3)(h)
        return keras.Model([user, items, x], keras.layers.Dense(1)(h))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return getattr(keras.optimizers, self.optimizer_name)(0.05)


def make(task, parts, seed=0):
    model = StatelessModel(task, seed)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, seed)
    return model, store, Step(task, model, store)


def batch(generator, size=BATCH):
    features = {
        "user": tf.constant(generator.integers(0, 50, size)),
        "items": tf.constant(generator.integers(0, 40, (size, 3))),
        "x": tf.constant(generator.normal(size=(size, 4)).astype("f4")),
    }
    return features, {"label": tf.constant(generator.integers(0, 2, size).astype("f4"))}


def losses(task, parts, steps=20, seed=0):
    _, store, step = make(task, parts, seed)
    return losses_of(step, steps), store


def losses_of(step, steps=20):
    train = train_with(step)
    generator = np.random.default_rng(5)
    return [
        float(train(*batch(generator), tf.constant([7, n << 32], tf.int64))) for n in range(steps)
    ]


@pytest.mark.parametrize(
    "optimizer",
    ["Adagrad", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Adam", "SGD"))],
)
def test_the_number_of_ps_changes_nothing(optimizer):
    task = TwoTowers(optimizer)
    (_, one, step_of_one), (_, three, step_of_three) = make(task, 1), make(task, 3)
    for mine, other in zip(one.read_dense(), three.read_dense(), strict=True):
        np.testing.assert_array_equal(mine, other)
    for table in range(3):
        np.testing.assert_array_equal(one.read_table(table), three.read_table(table))
    np.testing.assert_allclose(losses_of(step_of_one), losses_of(step_of_three), rtol=0, atol=1e-5)
    for table in range(3):
        np.testing.assert_allclose(
            one.read_table(table), three.read_table(table), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("find", ["find", "distinct"])
def test_what_is_asked_is_traced_once_for_all_steps(find):
    """A closure has many steps, and the chief traces it again whenever a ps was lost."""
    _, store, step = make(TwoTowers(), 2)
    features, labels = batch(np.random.default_rng(3))

    @tf.function(autograph=False)
    def steps(features, labels):
        lookups = step.lookups(features, labels)
        return [getattr(store.finder, find)(lookups) for _ in range(3)]

    operations = steps.get_concrete_function(features, labels).graph.get_operations()
    assert "Unique" not in {operation.type for operation in operations}
    called = [each.get_attr("f").name for each in operations if each.type == "PartitionedCall"]
    assert sorted(called.count(name) for name in set(called)) == [1, 3]  # the model's own once
    for once, again in itertools.pairwise(steps(features, labels)):
        tf.nest.map_structure(np.testing.assert_array_equal, once, again)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["Adagrad", "Adam"])
def test_training_equals_keras_own_training(optimizer):
    """With gradients of whole tables: Keras squares each of those of a row that is there twice."""
    task = TwoTowers(optimizer)
    model, store, step = make(task, 2)
    keras.utils.clear_session()
    theirs = task.build_model()
    for variable, value in zip(
        [v for v in theirs.trainable_variables if v.path in {d.path for d in model.dense}],
        store.read_dense(),
        strict=True,
    ):
        variable.assign(value)
    for index, table in enumerate(model.tables):
        next(v for v in theirs.variables if v.path == table.name).assign(store.read_table(index))
    theirs.compile(optimizer=task.optimizer(), loss=task.loss())
    theirs.optimizer.build(theirs.trainable_variables)

    @tf.function(autograph=False)
    def train_theirs(features, label):
        with tf.GradientTape() as tape:
            outputs = theirs(features, training=True)
            loss = theirs.compute_loss(features, label, outputs, training=True)
        gradients = tape.gradient(loss, [v.value for v in theirs.trainable_variables])
        whole = [tf.convert_to_tensor(gradient) for gradient in gradients]
        theirs.optimizer.apply(whole, theirs.trainable_variables)
        return loss

    generator = np.random.default_rng(9)
    train = train_with(step)
    for number in range(30):
        features, labels = batch(generator)
        expected = train_theirs(features, labels["label"])
        loss = train(features, labels, tf.constant([1, number], tf.int64))
        assert float(loss) == pytest.approx(float(expected), abs=1e-5)
    for value, variable in zip(store.read_state(), model.state, strict=True):
        other = next(v for v in theirs.variables if v.path == variable.path)
        np.testing.assert_allclose(value, other.numpy(), rtol=0, atol=1e-5)
    for index, table in enumerate(model.tables):
        other = next(v for v in theirs.variables if v.path == table.name)
        np.testing.assert_allclose(store.read_table(index), other.numpy(), rtol=0, atol=1e-3)


@pytest.mark.slow
def test_dropout_depends_on_the_step_and_the_seed_alone():
    task = TwoTowers(dropout=0.5)
    data = batch(np.random.default_rng(0))

    def first_losses():
        """Of a store that nothing has been pushed to."""
        _, _, fresh = make(task, 1)

        @tf.function(autograph=False)
        def loss(seed):
            return fresh.gradients(fresh.pull(*data), seed)[0]

        return [float(loss(tf.constant(seed, tf.int64))) for seed in ([1, 0], [1, 1 << 32], [2, 0])]

    losses = first_losses()
    assert first_losses() == losses
    assert len(set(losses)) == 3


def test_an_id_outside_its_table_stops_the_step_and_says_so():
    _, store, step = make(TwoTowers(), 2)
    features, labels = batch(np.random.default_rng(0))
    before = store.read_table(0)
    for bad in (50, -1):
        features["user"] = tf.constant([bad] * BATCH, tf.int64)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"id {bad} is outside table"):
            train_with(step)(features, labels, tf.constant([0, 0], tf.int64))
    assert np.array_equal(before, store.read_table(0))


def test_predicting_changes_nothing():
    _, store, step = make(Smoke(), 2)
    generator = np.random.default_rng(0)
    features = {
        "numbers": tf.constant(generator.normal(size=(8, 4)).astype("f4")),
        "token": tf.constant(generator.integers(0, 20, 8)),
    }
    labels = {"label": tf.constant(generator.integers(0, 2, 8))}
    predict = tf.function(step.predict, autograph=False)
    first = predict(features, labels)[1]["predictions"].numpy()
    assert np.array_equal(first, predict(features, labels)[1]["predictions"].numpy())
    assert first.shape == (8,)
    assert store.steps() == 0


@dataclasses.dataclass(frozen=True)
class UsedInTrainingOnly(TwoTowers):
    def build_model(self):
        return TrainingOnly()


class TrainingOnly(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(50, 8)
        self.dense = keras.layers.Dense(1)

    def build(self, input_shape):
        self.table.build()
        self.dense.build((None, 4))

    def call(self, inputs, training=False):
        hidden = inputs["x"]
        if training:
            hidden += self.table(inputs["user"])[:, :4]
        return self.dense(hidden)


def test_a_table_that_a_pass_does_not_use_is_left_alone():
    _, store, step = make(UsedInTrainingOnly(), 2)
    features, labels = batch(np.random.default_rng(0))
    before = store.read_table(0)
    tf.function(step.predict, autograph=False)(features, labels)
    assert np.array_equal(before, store.read_table(0))
    train_with(step)(features, labels, tf.constant([0, 0], tf.int64))
    assert not np.array_equal(before, store.read_table(0))


def test_a_ps_may_hold_no_row(monkeypatch):
    """More ps than the rows of a small group, padding included."""
    monkeypatch.setattr(group_layout, "BUCKETS", 8)  # instead of 1024: each part is a graph
    table = Table("t", 7, 4, keras.initializers.RandomUniform(seed=1))
    rule = rule_for(keras.optimizers.SGD(1.0))
    devices = {parts: ["/device:CPU:0"] * parts for parts in (1, 14)}
    one, many = (
        lazy_group(GroupLayout((table,), parts), names, rule, seed=3)
        for parts, names in devices.items()
    )
    before = one.read_table(0)
    np.testing.assert_array_equal(many.read_table(0), before)
    ids = tf.range(7)
    np.testing.assert_array_equal(
        tf.gather(many.pull(AskedIds(ids)).rows, many.pull(AskedIds(ids)).inverse), before
    )
    push(many, many.send(many.find(AskedIds(ids)), tf.ones([7, 4])), devices[14], [0] * 14)
    np.testing.assert_allclose(many.read_table(0), before - 1.0)
    assert sum(slice_.count == 0 for slice_ in many.slices()) == 6
