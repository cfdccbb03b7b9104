"""What updates away from a slot make of it, beside all of them one after the other."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.optimizers.update_rule import Slot

SQUARES = (1.0, 4.0, 0.25, 9.0, 1e-4, 0.0, 2.25)


def after(slot, value, squares):
    """What an update after the other makes of a slot."""
    for square in squares:
        kept = slot.kept
        value = max(value, square) if kept is None else kept * value + (1 - kept) * square
        value += square * (kept == 1.0)
    return value


@pytest.mark.parametrize("kept", [0.5, 0.99, 1.0, None])
def test_what_comes_late_is_made_from_what_the_slot_has_become(kept):
    slot, early, late = Slot(kept=kept, is_square=True), SQUARES[:3], SQUARES[3:]
    start = 3.0
    changed = [tf.constant(after(slot, start, some)) for some in (early, late)]
    value = tf.constant(start)
    for new, some in zip(changed, (early, late), strict=True):
        updates = tf.constant(float(len(some)))
        increment = slot.increment(tf.constant(start), new, updates)
        value = slot.merged(value, increment, updates)
    assert float(value) == pytest.approx(after(slot, start, SQUARES), rel=1e-5)


def test_rounding_takes_nothing_from_squares():
    slot, drawn = Slot(kept=0.9, is_square=True), np.random.default_rng(0)
    before = tf.constant(drawn.uniform(1e3, 1e6, 10_000).astype("f4"))
    new = before
    for _ in range(8):
        new = new + (0.0 - new) * (1.0 - 0.9)
    updates = tf.constant(8.0)
    merged = slot.merged(tf.zeros([10_000]), slot.increment(before, new, updates), updates)
    assert (merged.numpy() >= 0).all()


def test_rows_are_decayed_as_often_as_each_was_touched():
    slot, updates = Slot(kept=0.5), tf.constant([[0.0], [1.0], [3.0]])
    increment = slot.increment(tf.zeros([3, 2]), tf.ones([3, 2]), updates)
    merged = slot.merged(tf.fill([3, 2], 8.0), increment, updates)
    np.testing.assert_allclose(merged, [[9.0] * 2, [5.0] * 2, [2.0] * 2])
