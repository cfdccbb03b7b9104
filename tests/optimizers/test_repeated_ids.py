"""Ids that a batch names several times, beside Keras's optimizers on a `tf.IndexedSlices`."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.optimizers.test_rules import FEW
from tests.store import pushes
from tests.store.optimizers import COMBINATIONS, OPTIMIZERS, decays, make
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.store.clipping import GradientClipping
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.layout import Group
from tfps.store.table_group import TableGroup

STEPS, ROWS, DIM, OCCURRENCES = 12, 9, 4, 24
DEVICES = ["/device:CPU:0"] * 2


def drawn():
    """Of each step, the id of every row, some several times, a gradient for each, and a dense one.

    No row misses an update: how it makes up for those is approximated.
    """
    generator = np.random.default_rng(2)
    ids = [[*range(ROWS), *generator.choice(4, OCCURRENCES - ROWS)] for _ in range(STEPS)]
    gradients = generator.normal(0.1, 0.4, [STEPS, OCCURRENCES, DIM])
    dense = generator.normal(size=[STEPS, 3])
    return [tf.constant(ids), *(tf.constant(each, tf.float32) for each in (gradients, dense))]


def trained(optimizer, decay, is_each):
    """The rows after all steps: of a group on the ps, and as Keras has them."""
    rule, count = rule_for(optimizer), tf.Variable(0, dtype=tf.int64)
    table = Table("rows", ROWS, DIM, keras.initializers.RandomUniform(-0.5, 0.5, seed=1))
    layout = GroupLayout((table,), len(DEVICES))
    group = TableGroup(
        Group(layout, rule, decay, is_each=is_each), DEVICES, 3, lambda part: count.read_value()
    )
    clipping = GradientClipping(rule, [group])
    rows = keras.Variable(group.read_table(0), name="second")
    dense = keras.Variable(np.ones(3, "f4"), name="first")
    optimizer.build([rows, dense])
    data = drawn()

    @tf.function(autograph=False)
    def train(step):
        ids, gradient, of_dense = (each[step] for each in data)
        pulled = group.pull(AskedIds(ids))
        occurrences = group.gradients.of_occurrences(gradient)
        summed = group.sum_by_row(pulled, occurrences)
        _, [clipped] = clipping.clip([of_dense], [summed], [pulled])
        with tf.control_dependencies([clipped]):
            pushes.push(group, group.send(pulled, clipped), DEVICES, [count.read_value()] * 2)
        slices = tf.IndexedSlices(gradient, ids, tf.constant([ROWS, DIM], tf.int64))
        given = slices if is_each else tf.convert_to_tensor(slices)
        optimizer.apply([given, of_dense], [rows, dense])
        count.assign_add(1)

    for step in range(STEPS):
        train(tf.constant(step))
    return group.read_table(0), rows.numpy()


@pytest.mark.quick("adam-clipnorm")
@pytest.mark.parametrize(
    ("name", "combination"),
    [
        pytest.param(*pair, marks=() if pair in FEW else pytest.mark.slow)
        for pair in itertools.product(OPTIMIZERS, COMBINATIONS)
        if "centered" not in pair[0] or pair[1] == "global_clipnorm"
    ],
)
def test_each_occurrence_counts_as_keras_counts_it(name, combination):
    decay = decays(name, combination, "second")
    ours, theirs = trained(make(name, combination), decay, is_each=True)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adagrad", "adam", "ftrl", "rmsprop"])
def test_their_sum_counts_otherwise_for_optimizers_that_divide_by_squares(name):
    found = [trained(make(name, "alone"), False, is_each) for is_each in (True, False)]
    for ours, theirs in found:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert np.abs(found[0][0] - found[1][0]).max() > 5e-3


@pytest.mark.parametrize("options", [{}, {"clipnorm": 0.5}, {"clipvalue": 0.1}])
def test_row_wise_adagrad_squares_the_sum_as_it_does_in_plain_keras(options):
    ours, theirs = trained(tfps.RowWiseAdagrad(0.1, **options), False, is_each=True)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
