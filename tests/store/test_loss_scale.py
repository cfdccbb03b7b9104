import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import train_with
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model.loss import LossScaling, loss_scaling
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.store.run_state import LossScale
from tfps.worker.step import Step

BATCH = 8


@dataclasses.dataclass(frozen=True)
class Half(Task):
    """float16 compute; the loss is `factor` times its error, so that a large one overflows."""

    policy: str = "mixed_float16"
    wrapped: bool = True
    initial_scale: float = 2.0**15
    growth_steps: int = 3

    def features(self):
        return (
            Feature("id", "int64", vocabulary=20),
            Feature("x", "float32", (4,)),
            Feature("factor", "float32"),
        )

    def label(self):
        return Feature("y", "float32")

    def build_model(self):
        keras.mixed_precision.set_global_policy(self.policy)
        id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((4,), name="x")
        row = keras.layers.Embedding(20, 4, name="table")(id_in)
        hidden = keras.layers.Dense(8, "tanh")(keras.layers.Concatenate()([row, x]))
        return keras.Model({"id": id_in, "x": x}, keras.layers.Dense(1)(hidden))

    def compute_loss(self, features, labels, outputs):
        error = tf.square(tf.cast(outputs[:, 0], tf.float32) - labels)
        return tf.reduce_mean(features["factor"]) * tf.reduce_mean(error)

    def optimizer(self):
        inner = keras.optimizers.Adagrad(0.1)  # leaves rows alone that no id asked for
        if not self.wrapped:
            return inner
        return keras.optimizers.LossScaleOptimizer(inner, self.initial_scale, self.growth_steps)


def make(task, parts=2):
    model = StatelessModel(task, 0)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, 0)
    return model, store, train_with(Step(task, model, store))


def batch(generator, factor=1.0):
    x = generator.normal(size=(BATCH, 4)).astype("f4")
    features = {
        "id": tf.constant(generator.integers(0, 20, BATCH)),
        "x": tf.constant(x),
        "factor": tf.fill([BATCH], factor),
    }
    return features, {"y": tf.constant(x.sum(axis=1))}


def values(store):
    return [*store.read_dense(), store.read_table(0)]


def test_training_equals_keras_own_loss_scaling():
    """Ten steps, the fourth of which overflows; the scale grows after three good ones."""
    task = Half()
    model, store, train = make(task)
    keras.utils.clear_session()
    policy = keras.config.dtype_policy()
    theirs = task.build_model()
    keras.config.set_dtype_policy(policy)
    ours = dict(zip([v.path for v in model.dense], store.read_dense(), strict=True))
    ours[model.tables[0].name] = store.read_table(0)
    for variable in theirs.trainable_variables:
        variable.assign(ours[variable.path])
    optimizer = task.optimizer()
    optimizer.build(theirs.trainable_variables)
    generator, scales = np.random.default_rng(1), []
    for number in range(10):
        features, labels = batch(generator, 1e4 if number == 3 else 1.0)
        with tf.GradientTape() as tape:
            inputs = {"id": features["id"], "x": features["x"]}
            loss = task.compute_loss(features, labels["y"], theirs(inputs, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, [v.value for v in theirs.trainable_variables]))
        found = train(features, labels, tf.constant([0, number], tf.int64))
        scales.append(store.loss_scale.read()[0])
        assert scales[-1] == float(optimizer.dynamic_scale.numpy())
        if number != 3:
            assert float(found) == pytest.approx(float(loss), abs=2e-3)
    assert scales == [2.0**n for n in (15, 15, 16, 15, 15, 15, 16, 16, 16, 17)]
    assert store.loss_scale.read()[1] == 1
    assert store.steps() == 9
    kept = {v.path: v.numpy() for v in theirs.trainable_variables if v.path in ours}
    for variable, value in zip(model.dense, store.read_dense(), strict=True):
        # float16 has 11 bits; what is summed in another order differs in the last of them.
        np.testing.assert_allclose(value, kept[variable.path], rtol=0, atol=2e-3)


def test_a_step_that_overflows_changes_nothing_but_the_scale():
    _, store, train = make(Half())
    generator = np.random.default_rng(0)
    train(*batch(generator), tf.constant([0, 0], tf.int64))
    before = values(store)
    loss = train(*batch(generator, 1e5), tf.constant([0, 1], tf.int64))
    assert np.isfinite(loss)
    for old, new in zip(before, values(store), strict=True):
        assert np.array_equal(old, new)
    assert store.loss_scale.read() == (2.0**14, 1)
    assert store.steps() == 1


@pytest.mark.slow
def test_gradients_too_small_for_float16_survive():
    """The loss is scaled down so far that its gradients are 0 in float16 without scaling."""
    changed = {}
    for policy, scale in (("mixed_float16", 1.0), ("mixed_float16", 2.0**15), ("float32", 1.0)):
        _, store, train = make(Half(policy, initial_scale=scale))
        before = store.read_dense()
        train(*batch(np.random.default_rng(0), 1e-7), tf.constant([0, 0], tf.int64))
        differences = zip(store.read_dense(), before, strict=True)
        changed[policy, scale] = np.concatenate([(new - old).ravel() for new, old in differences])
    exact = changed["float32", 1.0]
    assert np.abs(changed["mixed_float16", 2.0**15] - exact).max() < 0.05 * np.abs(exact).max()
    assert np.abs(changed["mixed_float16", 1.0] - exact).max() > 0.1 * np.abs(exact).max()


def test_a_worker_changes_only_the_scale_that_it_used():
    scale = LossScale(LossScaling(1024.0, 2), "/device:CPU:0")
    used = tf.constant(1024.0)
    for _ in range(2):  # two workers overflow with the same scale
        scale.update(used, tf.constant(False))
    assert scale.read() == (512.0, 2)
    scale.update(tf.constant(512.0), tf.constant(True))
    scale.update(tf.constant(512.0), tf.constant(True))
    assert scale.read() == (1024.0, 2)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (Half("float32", wrapped=False), None),
        (Half("mixed_bfloat16", wrapped=False), None),
        (Half("mixed_float16", wrapped=False), LossScaling(2.0**15, 2000)),  # as compile() does
        (Half("float32"), LossScaling(2.0**15, 3)),
    ],
)
def test_who_scales_the_loss(task, expected):
    policy = keras.config.dtype_policy()
    model = task.build_model()
    keras.config.set_dtype_policy(policy)
    assert loss_scaling(task, model, []) == expected


def test_a_scaling_of_the_tables_alone_is_refused():
    class TablesOnly(Half):
        def optimizer(self):
            return keras.optimizers.SGD(0.1)

        def table_optimizer(self, table):
            return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))

    with pytest.raises(
        UserError, match=r"'table/embeddings': table_optimizer\(\) is a LossScaleOptimizer"
    ):
        StatelessModel(TablesOnly(), 0)
