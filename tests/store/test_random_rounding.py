"""Float32 values as bfloat16 ones, rounded at random."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.stored_row import draw_noise, round_at_random

STREAM = 7


def rounded(values, number=0):
    values = tf.constant(values, tf.float32)
    noise = draw_noise(tf.shape(values), STREAM, tf.constant(number, tf.int64))
    return tf.cast(round_at_random(values, noise), tf.float32).numpy()


def test_what_bfloat16_has_stays_what_it_is():
    greatest = float(tf.bfloat16.max)
    exact = [0.0, -0.0, 1.0, -1.0078125, 2.0**-133, greatest, -greatest, np.inf, -np.inf, np.nan]
    for number in range(50):
        found = rounded(exact, number)
        np.testing.assert_array_equal(found, np.array(exact, np.float32))
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(exact[:-1]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("part", [0.0001, 0.25, 0.5, 0.9])
def test_the_nearer_of_two_neighbours_is_the_likelier(sign, part):
    low, high, count = sign * 1.0, sign * 1.0078125, 200_000
    found = rounded(np.full([count], low + part * (high - low)))
    assert set(found.tolist()) <= {low, high}
    # 6 standard deviations of a binomial distribution, and the last of the 16 lost bits.
    tolerance = 6 * np.sqrt(part * (1 - part) / count) + 2**-16
    assert abs(np.mean(found == high) - part) < tolerance


def test_small_steps_count_on_average():
    values, nearest = np.ones([2000], np.float32), np.float32(1)
    for number in range(300):
        values = rounded(values + np.float32(1e-3), number)
        nearest = tf.cast(tf.cast(nearest + 1e-3, tf.bfloat16), tf.float32).numpy()
    assert nearest == 1  # half of the last bit of a bfloat16 at 1 is 0.0039
    # A step up is 0.0078 wide: a sum of 300 has a deviation below 0.05.
    assert abs(values.mean() - 1.3) < 6 * 0.05 / np.sqrt(2000)


def test_noise_is_the_same_for_an_update_and_another_for_others():
    shape = tf.constant([41, 3])
    one = draw_noise(shape, STREAM, tf.constant(5, tf.int64)).numpy()
    assert one.shape == (41, 3)
    assert one.min() >= 0
    assert one.max() < 1 << 16
    np.testing.assert_array_equal(one, draw_noise(shape, STREAM, tf.constant(5, tf.int64)))
    for other in (draw_noise(shape, STREAM, tf.constant(6, tf.int64)), draw_noise(shape, 8, 5)):
        assert np.mean(one == other.numpy()) < 0.1
