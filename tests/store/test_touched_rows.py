import numpy as np
import pytest
import tensorflow as tf

from tfps.store.touched_rows import TouchedRows

DEVICE = "/device:CPU:0"


def counts(touched, stride):
    return touched.counts(stride).numpy().tolist()


def rows(touched, first, end):
    return touched.select(tf.constant(first, tf.int64), tf.constant(end, tf.int64)).numpy().tolist()


@pytest.mark.parametrize("size", [1, 127, 128, 129, 1000])
def test_what_was_marked_is_counted_by_run_and_selected(size):
    touched = TouchedRows(size, DEVICE)
    marked = np.unique(np.random.default_rng(size).integers(0, size, size // 3 + 1))
    for dtype in (tf.int32, tf.int64):
        touched.mark(tf.constant(marked, dtype))
    touched.freeze()
    for stride in (128, 384):
        expected = [np.sum(marked // stride == run) for run in range(-(-size // stride))]
        assert counts(touched, stride) == expected
    assert rows(touched, 0, size) == marked.tolist()
    assert rows(touched, size // 2, size) == [row for row in marked if row >= size // 2]


def test_every_row_of_a_run_can_be_touched():
    """The most that a byte has to hold on the way."""
    touched = TouchedRows(384, DEVICE)
    touched.mark(tf.range(384))
    touched.freeze()
    assert counts(touched, 128) == [128, 128, 128]
    assert counts(touched, 384) == [384]


def test_frozen_marks_stay_while_others_are_made_and_forgotten():
    touched = TouchedRows(500, DEVICE)
    touched.mark(tf.constant([3, 499]))
    touched.freeze()
    touched.forget()
    touched.mark(tf.constant([7]))
    assert rows(touched, 0, 500) == [3, 499]
    touched.thaw()
    touched.freeze()
    assert rows(touched, 0, 500) == [7]
