"""Rows that miss updates in which float32, a schedule or weight decay come to an end."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import rule_for
from tfps.optimizers.step_sums import ScheduledSums, of_schedule
from tfps.optimizers.update_rule import RowUpdate

SCHEDULES = keras.optimizers.schedules


def steps(rate):
    return SCHEDULES.PiecewiseConstantDecay([5, 100, 250], [rate, rate / 10, rate / 2, rate / 50])


def both(make, start, missed, before=0):
    """A row that one batch touches after some updates and that then misses some: Keras's, ours."""
    theirs, gradient = keras.Variable(np.full([1, 2], start, "f4")), tf.constant([[0.01, -0.3]])
    optimizer = make()
    optimizer.build([theirs])
    optimizer.iterations.assign(before)

    @tf.function(autograph=False)
    def train():
        optimizer.apply([gradient], [theirs])
        zero = tf.zeros_like(gradient)
        tf.while_loop(
            lambda step: step < missed,
            lambda step: (optimizer.apply([zero], [theirs]), step + 1)[1:],
            [0],
        )

    train()
    rule, step = rule_for(make()), tf.constant(before, tf.int64)
    slots = [tf.fill([1, 2], slot.start) for slot in rule.slots.values()]
    row = tf.fill([1, 2], start)
    if decays := bool(optimizer.weight_decay):
        row -= rule.decay(step) * row
    row, *slots = rule.sparse(RowUpdate(row, slots, gradient, step))
    updates = MissedUpdates.of(tf.constant([missed]), step + missed + 1)
    return theirs.numpy(), rule.catch_up(row, slots, updates, decays)[0].numpy()


@pytest.mark.parametrize(("beta_2", "missed"), [(0.9, 2000), (0.99, 20_000)])
def test_lion_leaves_a_row_alone_once_its_momentum_is_below_what_float32_holds(beta_2, missed):
    theirs, ours = both(lambda: keras.optimizers.Lion(1e-4, beta_1=0.8, beta_2=beta_2), 0.0, missed)
    np.testing.assert_allclose(ours, theirs, rtol=5e-4)
    assert np.all(np.abs(ours) < 0.9 * missed * 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"beta_1": 0.999, "beta_2": 0.999},
        {"beta_1": 0.999, "beta_2": 0.9999},
        {"beta_1": 0.999, "amsgrad": True},
        {"beta_2": 0.0, "amsgrad": True},
    ],
)
@pytest.mark.parametrize("before", [3, 4000])
def test_adam_moves_rows_as_keras_does_however_slowly_its_moments_vanish(options, before):
    theirs, ours = both(lambda: keras.optimizers.Adam(0.001, **options), 0.0, 3000, before)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)  # what float32 rounds in 3,000 updates


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(1.0, weight_decay=1.5),
        lambda: keras.optimizers.SGD(1.0, weight_decay=1.0),
        lambda: keras.optimizers.SGD(1.0, momentum=0.9, weight_decay=1.2),
        lambda: keras.optimizers.SGD(steps(1.0), momentum=0.2, weight_decay=1.6),
        lambda: keras.optimizers.AdamW(0.1, weight_decay=10.0),
        lambda: keras.optimizers.Lion(0.1, weight_decay=12.0),
        lambda: keras.optimizers.RMSprop(0.1, momentum=0.5, weight_decay=9.0),
        lambda: keras.optimizers.Ftrl(
            0.1, weight_decay=2.0, l2_shrinkage_regularization_strength=0.5
        ),
    ],
    ids=["sgd", "sgd 1", "momentum", "steps", "adamw", "lion", "rmsprop", "ftrl"],
)
@pytest.mark.quick("3-*")
@pytest.mark.parametrize("missed", [1, 3, 40])
def test_weight_decay_that_takes_all_of_a_row_or_more_leaves_what_keras_leaves(make, missed):
    theirs, ours = both(make, 0.5, missed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["Lion", "AdamW", "SGD"])
@pytest.mark.parametrize("missed", [40, 400])
def test_a_gap_over_several_steps_of_a_schedule_adds_up_each_step(kind, missed):
    def make():
        return getattr(keras.optimizers, kind)(steps(0.01), weight_decay=0.5)

    theirs, ours = both(make, 0.5, missed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.quick("*-41", "*-49", "*-20.5")
# A graph multiplies by what float32 has for 1 / 41, 1 / 47, 1 / 55 and 1 / 107, float64 for 1 / 49,
# which are too small: 41 of 41 updates are less than 1.
@pytest.mark.parametrize("steps", [41, 47, 49, 55, 100, 107, 20.5])
@pytest.mark.parametrize(
    "make",
    [
        lambda steps: SCHEDULES.ExponentialDecay(1.0, steps, 0.9, staircase=True),
        lambda steps: SCHEDULES.InverseTimeDecay(1.0, steps, 0.5, staircase=True),
        lambda steps: SCHEDULES.PolynomialDecay(1.0, steps, 0.1, cycle=True),
        lambda steps: SCHEDULES.CosineDecayRestarts(1.0, steps, 1.0, m_mul=0.9),
    ],
    ids=["exponential", "inverse", "cycle", "restarts"],
)
def test_a_rate_jumps_at_the_update_at_which_it_does_in_the_graph_of_a_fit(make, steps):
    schedule = make(steps)
    ends = np.floor(np.arange(1, 30)[:, np.newaxis] * steps) + np.arange(-1, 3)
    updates = tf.constant(np.unique(ends.ravel()), tf.int64)

    @tf.function(autograph=False)
    def theirs(updates):
        return tf.vectorized_map(schedule, updates)

    first = tf.cast(updates, tf.float64)
    ours = ScheduledSums(of_schedule(schedule), 0.0).between(first, first + 1.0)
    np.testing.assert_allclose(ours, theirs(updates), rtol=2e-4)


def ftrl(rate, shrinkage=0.866):
    return keras.optimizers.Ftrl(
        rate, l1_regularization_strength=0.01, l2_shrinkage_regularization_strength=shrinkage
    )


# Shrinkage of twice 0.866 turns signs where the accumulator's root, 0.32, over the rate is less.
@pytest.mark.parametrize(
    ("rate", "is_refused"),
    [
        (0.3, True),
        (0.1, False),
        (SCHEDULES.InverseTimeDecay(0.3, 353, 0.3), True),
        (SCHEDULES.InverseTimeDecay(0.1, 353, 0.3), False),
        (SCHEDULES.CosineDecay(0.01, 100, warmup_target=0.3, warmup_steps=37), True),
        (SCHEDULES.PiecewiseConstantDecay([100, 200], [0.1, 0.3, 0.1]), True),
    ],
)
def test_shrinkage_that_turns_signs_next_to_l1_is_refused(rate, is_refused):
    assert bool(rule_for(ftrl(rate)).refusal(False)) == is_refused
    assert not rule_for(ftrl(rate, 0.01)).refusal(False)
