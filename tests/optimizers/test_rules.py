import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.store import pushes
from tests.store.groups import lazy_group
from tests.store.optimizers import (
    COMBINATIONS,
    OPTIMIZERS,
    decays,
    make,
    rate_of,
    starts_of,
    step_rows,
)
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.optimizers.update_rule import RowUpdate
from tfps.store.clipping import GradientClipping
from tfps.store.dense_parameters import DenseParameters
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.layout import DenseLayout

STEPS = 100
DEVICES = ["/device:CPU:0"] * 2
NAMES, SHAPES = ("kernel", "bias"), ((5, 8), (10,))
ROWS, DIM = (30, 20), 4  # of two tables


def step_numbers(step):
    return [tf.cast(step, tf.int64)] * len(DEVICES)


def dense_gradients():
    """Some are tiny: there Keras's and TensorFlow's epsilons would part."""
    generator = np.random.default_rng(1)
    return [
        (generator.normal(size=(STEPS, *s)) * 10.0 ** generator.integers(-5, 1, (STEPS, *s)))
        .astype("f4")
        for s in SHAPES
    ]  # fmt: skip


# Each optimizer with one combination, each combination with four of them; the others are slow.
FEW = [(name, list(COMBINATIONS)[k % len(COMBINATIONS)]) for k, name in enumerate(OPTIMIZERS)]


@pytest.mark.parametrize(
    ("name", "combination"),
    [
        pytest.param(*pair, marks=() if pair in FEW else pytest.mark.slow)
        for pair in itertools.product(OPTIMIZERS, COMBINATIONS)
    ],
)
def test_dense_updates_follow_keras(name, combination):
    optimizer = make(name, combination)
    initial = np.linspace(-1, 1, 50).astype("f4")
    theirs = [
        keras.Variable(piece.reshape(shape), name=n)
        for n, shape, piece in zip(NAMES, SHAPES, np.split(initial, [40]), strict=True)
    ]
    rule = rule_for(optimizer)
    layout = DenseLayout(NAMES, SHAPES, len(DEVICES))
    decayed = [decays(name, combination, n) for n in NAMES]
    dense = DenseParameters(layout, DEVICES, rule, initial, decayed)
    clipping = GradientClipping(rule, [])
    optimizer.build(theirs)
    gradients = [tf.constant(gradient) for gradient in dense_gradients()]

    @tf.function(autograph=False)
    def train():
        def one(step):
            now = [gradient[step] for gradient in gradients]
            optimizer.apply(now, theirs)
            sent = dense.send(clipping.clip(now, [], [])[0])
            pushes.push(dense, sent, DEVICES, step_numbers(step))
            return step + 1

        tf.while_loop(lambda step: step < STEPS, one, [0], parallel_iterations=1)

    train()
    for ours, variable in zip(pushes.pull_dense(dense, DEVICES), theirs, strict=True):
        np.testing.assert_allclose(ours.numpy(), variable.numpy(), rtol=0, atol=1e-5)


def table_batches():
    """Per step, ids in a group of two tables, duplicates included, and a gradient for each."""
    generator = np.random.default_rng(2)
    for _ in range(STEPS):
        ids = [generator.integers(0, rows // 2, 6) for rows in ROWS]  # upper halves untouched
        yield np.concatenate([ids[0], ids[1] + ROWS[0]]), generator.normal(size=(12, DIM))


def clipped(optimizer, gradients):
    """Gradients of variables, clipped by the formulas of Keras's documentation."""
    if optimizer.clipvalue:
        return [np.clip(g, -optimizer.clipvalue, optimizer.clipvalue) for g in gradients]
    norms = [np.sqrt((gradient**2).sum()) for gradient in gradients]
    if optimizer.global_clipnorm:
        norms, limit = [np.sqrt(np.square(norms).sum())] * len(norms), optimizer.global_clipnorm
    else:
        limit = optimizer.clipnorm or np.inf
    return [g * min(1, limit / norm) for g, norm in zip(gradients, norms, strict=True)]


def held(group):
    """Rows with their slots beside them, in the order of the group's ids, `[rows, 1 + slots, dim]`.

    Slots of Adagrad hold epsilon on top.
    """
    values = np.concatenate([slice_.variable.numpy() for slice_ in group.slices()])
    rows = np.concatenate([group.layout.rows_of(table) for table in range(len(ROWS))])
    return values.reshape([group.layout.total_rows, -1, DIM])[rows]


@pytest.mark.parametrize(
    ("name", "combination"),
    [*FEW, ("adamw", "alone"), ("ftrl_options", "clipvalue"), ("lion", "alone")],
)
def test_sparse_updates_follow_the_lazy_rule(name, combination):
    optimizer = make(name, combination)
    rule, decay = rule_for(optimizer), decays(name, combination, "second")
    initializer = keras.initializers.RandomUniform(-0.5, 0.5, seed=1)
    tables = tuple(Table(n, r, DIM, initializer) for n, r in zip("ab", ROWS, strict=True))
    group = lazy_group(GroupLayout(tables, 2), DEVICES, rule, decay, seed=3)
    clipping = GradientClipping(rule, [group])

    @tf.function(autograph=False)
    def push(ids, gradient, step):
        pulled = group.pull(AskedIds(ids))
        summed = clipping.clip([], [group.sum_by_row(pulled, gradient)], [pulled])[1]
        pushes.push(group, group.send(pulled, summed[0]), DEVICES, step_numbers(step))

    before = held(group)
    rows = before[:, 0].astype("f8")
    slots = [np.full_like(rows, start) for start in starts_of(optimizer)]
    touched = set()
    for step, (ids, gradient) in enumerate(table_batches()):
        push(tf.constant(ids, tf.int32), tf.constant(gradient, tf.float32), tf.constant(step))
        distinct, inverse = np.unique(ids, return_inverse=True)
        summed = np.zeros([len(distinct), DIM])
        np.add.at(summed, inverse, gradient)
        first = distinct < ROWS[0]
        summed = np.concatenate(clipped(optimizer, [summed[first], summed[~first]]))
        rate = rate_of(name, combination, step)
        mine, beside = rows[distinct], [slot[distinct] for slot in slots]
        mine -= mine * (optimizer.weight_decay or 0) * rate * decay
        rows[distinct] = step_rows(optimizer, rate, step, mine, beside, summed)
        for slot, values in zip(slots, beside, strict=True):
            slot[distinct] = values
        touched |= set(distinct)
    after = held(group)
    np.testing.assert_allclose(after[:, 0], rows, rtol=0, atol=2e-5)
    untouched = sorted(set(range(sum(ROWS))) - touched)
    assert len(untouched) >= sum(ROWS) // 2
    assert np.array_equal(before[untouched], after[untouched])


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (lambda: keras.optimizers.Nadam(), "Nadam is not supported .* Ftrl"),
        (lambda: keras.optimizers.SGD(use_ema=True), "SGD: use_ema=True"),
        (lambda: keras.optimizers.Lion(loss_scale_factor=2.0), "Lion: loss_scale_factor=2.0"),
        (
            lambda: keras.optimizers.Ftrl(gradient_accumulation_steps=2),
            "Ftrl: gradient_accumulation_steps=2",
        ),
    ],
)
def test_what_has_no_rule_is_refused_by_name(optimizer, named):
    with pytest.raises(UserError, match=named):
        rule_for(optimizer())


def test_rules_of_equal_optimizers_are_equal():
    kinds = [(name, "alone") for name in OPTIMIZERS] + [("adam", c) for c in COMBINATIONS]
    rules = [[rule_for(make(*kind)) for kind in kinds] for _ in range(2)]
    assert rules[0] == rules[1]
    assert set(rules[0]) == set(rules[1])
    assert len(set(rules[0])) == len(set(kinds))


def test_centered_rmsprop_stays_finite_where_rounding_makes_the_variance_negative():
    rule = rule_for(keras.optimizers.RMSprop(0.01, centered=True))
    gradient, averages = tf.fill([1000], 1e3), tf.linspace(999.9, 1000.1, 1000)
    slots = [tf.square(averages) * (1 - 1e-6), averages]
    changed = rule.sparse(RowUpdate(tf.zeros([1000]), slots, gradient, tf.constant(0, tf.int64)))
    assert all(np.isfinite(value).all() for value in changed)


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


def test_a_schedule_whose_class_is_not_registered_is_made_again():
    rule = rule_for(keras.optimizers.SGD(Unregistered(0.3)))
    assert rule.has_schedule
    assert float(rule.config["learning_rate"](0)) == pytest.approx(0.3)


@pytest.mark.parametrize("rate", [WithoutConfig(), constant_rate])
def test_a_learning_rate_that_cannot_be_made_again_is_refused_with_what_it_lacks(rate):
    with pytest.raises(UserError, match=r"LearningRateSchedule with get_config\(\)"):
        rule_for(keras.optimizers.SGD(rate))
