import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.errors import UserError
from tfps.store.rules import rule_for
from tfps.store.update_rule import Update

STEPS = 100
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adagrad_zero_start": lambda: keras.optimizers.Adagrad(0.01, initial_accumulator_value=0.0),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adam_schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
    ),
}


def make(rule, shape):
    variable = tf.Variable(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype("float32"))
    slots = [tf.Variable(tf.fill(shape, np.float32(rule.slot_start))) for _ in rule.slots]
    return variable, slots


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_updates_follow_keras(name):
    rule = rule_for(OPTIMIZERS[name]())
    variable, slots = make(rule, [50])
    theirs = keras.Variable(variable.numpy())
    optimizer = OPTIMIZERS[name]()
    optimizer.build([theirs])
    generator = np.random.default_rng(1)
    for step in range(STEPS):
        # Some gradients are tiny: there Keras's and TensorFlow's epsilons would part.
        gradient = (generator.normal(size=50) * 10.0 ** generator.integers(-5, 1, 50)).astype("f4")
        optimizer.apply([tf.constant(gradient)], [theirs])
        rule.dense(Update(variable, slots, tf.constant(gradient), tf.constant(step, tf.int64)))
    np.testing.assert_allclose(variable.numpy(), theirs.numpy(), rtol=0, atol=1e-5)


def lazy_reference(name, variable, gradients):
    """The optimizers' formulas, applied to touched rows only."""
    variable = variable.astype("f8")
    first, second = np.zeros_like(variable), np.zeros_like(variable)
    if name == "adagrad":
        second += 0.1
    for step, (rows, gradient) in enumerate(gradients):
        if name == "sgd":
            variable[rows] -= 0.1 * gradient
        elif name in ("momentum", "nesterov"):
            first[rows] = 0.9 * first[rows] - 0.05 * gradient
            ahead = 0.9 * first[rows] - 0.05 * gradient if name == "nesterov" else first[rows]
            variable[rows] += ahead
        elif name.startswith("adagrad"):
            second[rows] += gradient**2
            rate = 0.01 if name == "adagrad_zero_start" else 0.1
            variable[rows] -= rate * gradient / np.sqrt(second[rows] + 1e-7)
        else:
            rate = 0.05 * 0.9 ** (step / 10) if name == "adam_schedule" else 0.01
            first[rows] += (gradient - first[rows]) * 0.1
            second[rows] += (gradient**2 - second[rows]) * 0.001
            rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            variable[rows] -= rate * first[rows] / (np.sqrt(second[rows]) + 1e-7)
    return variable


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_updates_follow_the_lazy_rule(name):
    rule = rule_for(OPTIMIZERS[name]())
    variable, slots = make(rule, [30, 4])
    generator = np.random.default_rng(2)
    gradients = []
    for _ in range(STEPS):
        rows = generator.choice(30, size=5, replace=False)
        gradients.append((rows, generator.normal(size=(5, 4)).astype("f4")))
    expected = lazy_reference(name, variable.numpy(), gradients)
    for step, (rows, gradient) in enumerate(gradients):
        touched = [tf.gather(v, rows) for v in (variable, *slots)]
        number = tf.constant(step, tf.int64)
        changed = rule.sparse(touched[0], touched[1:], tf.constant(gradient), number)
        for target, values in zip((variable, *slots), changed, strict=True):
            target.scatter_update(tf.IndexedSlices(values, rows))
    np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (lambda: keras.optimizers.Nadam(), "Nadam"),
        (lambda: keras.optimizers.Adam(clipnorm=1.0), "clipnorm"),
        (lambda: keras.optimizers.SGD(weight_decay=0.1), "weight_decay"),
        (lambda: keras.optimizers.Adam(amsgrad=True), "amsgrad"),
        (lambda: keras.optimizers.SGD(use_ema=True), "use_ema"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(optimizer, named):
    with pytest.raises(UserError, match=named):
        rule_for(optimizer())


class Unregistered(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate=0.1):
        self.rate = rate

    def __call__(self, step):
        return self.rate

    def get_config(self):
        return {"rate": self.rate}


class WithoutConfig(Unregistered):
    def get_config(self):
        return super(Unregistered, self).get_config()


def constant_rate():
    return 0.1


@pytest.mark.parametrize("rate", [Unregistered(), WithoutConfig(), constant_rate])
def test_a_learning_rate_that_cannot_be_rebuilt_says_how_to_register_it(rate):
    with pytest.raises(UserError, match="register_keras_serializable"):
        rule_for(keras.optimizers.SGD(rate))
