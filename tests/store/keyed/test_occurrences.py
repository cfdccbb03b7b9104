"""Counts of keys that have no row: never too little, and seldom too much."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.keyed.key_index import Occurrences

LEAST_WIDTH = 1 << 16  # counters in each line of the smallest sketch
MOST = 127


class Sketch:
    """A sketch that is called as a ps calls it."""

    def __init__(self, rows=1, seed=0):
        self.occurrences = Occurrences(rows)
        self._draw = np.random.default_rng(seed)
        signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.int32)]

        @tf.function(autograph=False, input_signature=signature)
        def add(hashes, counts):
            now, done = self.occurrences.add(hashes, counts)
            with tf.control_dependencies([done]):
                return tf.identity(now)

        self._add = add
        self.clear = tf.function(lambda: [self.occurrences.clear(), tf.constant(0)][1:])

    def add(self, hashes, counts=None):
        counts = np.ones(len(hashes)) if counts is None else counts
        return self._add(tf.constant(hashes, tf.int64), tf.constant(counts, tf.int32)).numpy()

    def look(self, hashes):
        """How often they have occurred, without another occurrence."""
        return self.add(hashes, np.zeros(len(hashes)))

    def draw(self, count):
        return self._draw.integers(-(2**63), 2**63 - 1, count, endpoint=True)


def test_no_count_is_too_small():
    sketch = Sketch()
    hashes = sketch.draw(4_000)
    truth = np.zeros(len(hashes), np.int64)
    for turn in range(20):
        some = np.random.default_rng(turn).choice(len(hashes), 700, replace=False)
        counts = np.random.default_rng(turn).integers(1, 4, len(some))
        truth[some] += counts
        assert (sketch.add(hashes[some], counts) >= truth[some]).all()
    assert (sketch.look(hashes) >= truth).all()
    assert (sketch.look(hashes) == truth).mean() > 0.97


def test_a_count_stays_what_a_byte_holds():
    sketch = Sketch()
    key = sketch.draw(1)
    assert sketch.add(key, [100]) == [100]
    assert sketch.add(key, [100]) == [MOST]
    assert sketch.add(key, [2**31 - 1 - MOST]) == [MOST]


def test_keys_that_share_a_counter_in_one_batch_are_not_counted_for_each_other():
    sketch = Sketch()
    assert (sketch.add([5, 6, 7], [1, 50, 3]) == [1, 50, 3]).all()
    assert (sketch.look([5, 6, 7]) == [1, 50, 3]).all()


def test_counts_are_halved_when_half_as_many_occurred_as_a_line_has_counters():
    sketch = Sketch()
    key = sketch.draw(1)
    sketch.add(key, [9])
    left = LEAST_WIDTH // 2 - 9
    while left:
        count = min(left, 100)
        sketch.add(sketch.draw(1), [count])
        left -= count
    assert sketch.look(key) >= 9
    sketch.add(sketch.draw(1))
    assert sketch.look(key) == [4]
    # And begins to count to that number again.
    for _ in range(LEAST_WIDTH // 2 // 100):
        sketch.add(sketch.draw(1), [100])
    assert sketch.look(key) == [4]
    sketch.add(sketch.draw(1), [100])
    assert sketch.look(key) == [2]


@pytest.mark.parametrize("rows", [1, 40_000])
def test_a_new_key_is_counted_too_often_as_seldom_as_is_said(rows):
    """(1 - e^-1/2)^4 = 2.4 % at the very end of the time between two halvings."""
    sketch = Sketch(rows)
    width = sketch.occurrences._counters.shape[0] // 4
    for some in np.array_split(sketch.draw(width // 2), 8):
        sketch.add(some)
    strangers = sketch.draw(20_000)
    share = (sketch.look(strangers) > 0).mean()
    print(f"{share:.2%} of new keys are counted too often, of {width} counters a line")
    assert share < 0.024 + 5 * np.sqrt(0.024 / len(strangers))


@pytest.mark.parametrize(
    ("rows", "lines"), [(0, 1 << 16), (8_000, 1 << 16), (10_000, 1 << 17), (1 << 40, 1 << 26)]
)
def test_the_memory_is_what_is_said(rows, lines):
    assert Occurrences(rows)._counters.shape == [4 * lines]


def test_what_is_cleared_has_occurred_never():
    sketch = Sketch()
    hashes = sketch.draw(100)
    sketch.add(hashes)
    sketch.clear()
    assert not sketch.look(hashes).any()
