import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.store.group_layout import BUCKETS, GroupLayout
from tfps.store.partitioned_variable import TouchedRows

DEVICE = "/device:CPU:0"


def table_of(name, rows):
    return Table(name, rows, 1, keras.initializers.Zeros())


def touched_rows(rows):
    """Of one of many parts, which has so many rows."""
    layout = GroupLayout((table_of("table", rows * BUCKETS),), BUCKETS)
    assert layout.bounds(0) == (0, rows)
    return TouchedRows(layout, 0, DEVICE)


def freeze(touched, with_before=False):
    touched.freeze(tf.constant(with_before))


def counts(touched, stride):
    return touched.counts(stride).by_run.numpy().tolist()


def rows(touched, first, end):
    return touched.select(tf.constant(first, tf.int64), tf.constant(end, tf.int64)).numpy().tolist()


@pytest.mark.parametrize("size", [1, 127, 128, 129, 1000])
def test_what_was_marked_is_counted_by_run_and_selected(size):
    touched = touched_rows(size)
    marked = np.unique(np.random.default_rng(size).integers(0, size, size // 3 + 1))
    for dtype in (tf.int32, tf.int64):
        touched.mark(tf.constant(marked, dtype))
    freeze(touched)
    for stride in (128, 384):
        expected = [np.sum(marked // stride == run) for run in range(-(-size // stride))]
        assert counts(touched, stride) == expected
    assert rows(touched, 0, size) == marked.tolist()
    assert rows(touched, size // 2, size) == [row for row in marked if row >= size // 2]


def test_every_row_of_a_run_can_be_touched():
    """The most that a byte has to hold on the way."""
    touched = touched_rows(384)
    touched.mark(tf.range(384))
    freeze(touched)
    assert counts(touched, 128) == [128, 128, 128]
    assert counts(touched, 384) == [384]


def test_frozen_marks_stay_while_others_are_made_and_forgotten():
    touched = touched_rows(500)
    touched.mark(tf.constant([3, 499]))
    freeze(touched)
    touched.forget()
    touched.mark(tf.constant([7]))
    assert rows(touched, 0, 500) == [3, 499]
    touched.thaw()
    freeze(touched)
    assert rows(touched, 0, 500) == [7]


def test_what_was_touched_before_is_known_until_marks_are_forgotten_again():
    touched = touched_rows(500)
    touched.mark(tf.constant([3, 7, 499]))
    touched.forget()
    touched.mark(tf.constant([7, 8]))
    freeze(touched, with_before=True)
    assert rows(touched, 0, 500) == [3, 7, 8, 499]
    assert counts(touched, 128) == [3, 0, 0, 1]
    freeze(touched)
    assert rows(touched, 0, 500) == [7, 8]
    touched.forget()
    touched.mark(tf.constant([9]))
    freeze(touched, with_before=True)
    assert rows(touched, 0, 500) == [7, 8, 9]


def test_marks_made_while_others_are_forgotten_stay():
    """Whichever was there before, and whenever they are made."""
    touched = touched_rows(1 << 20)
    everything = tf.range(1 << 20)
    stops = threading.Event()

    def forget():
        while not stops.is_set():
            touched.forget()

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        for _ in range(100):
            touched.mark(everything)
            freeze(touched, with_before=True)
    finally:
        stops.set()
        thread.join()
    touched.mark(everything)
    freeze(touched)
    assert len(rows(touched, 0, 1 << 20)) == 1 << 20


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 2000])
@pytest.mark.parametrize("sizes", [(5000,), (1024, 2048, 1), (3, 700, 900, 2500, 1, 1), (1023, 1)])
def test_what_was_marked_is_counted_by_table(sizes, parts):
    tables = tuple(table_of(f"table_{index}", size) for index, size in enumerate(sizes))
    layout = GroupLayout(tables, parts)
    drawn = np.random.default_rng(parts).random(layout.total_rows) < 0.3
    table, _ = layout.ids_of(np.arange(layout.total_rows))
    marked = np.flatnonzero(drawn & (table < len(tables)))  # padding is never pushed
    for part in (0, parts // 2, parts - 1):
        first, end = layout.bounds(part)
        mine = marked[(marked >= first) & (marked < end)]
        touched = TouchedRows(layout, part, DEVICE)
        touched.mark(tf.constant(mine - first, tf.int64))
        freeze(touched)
        counts = touched.counts(128).by_table.numpy()
        expected = np.bincount(table[mine], minlength=len(tables))
        np.testing.assert_array_equal(counts, expected)
        assert touched.tables == [each.name for each in tables]
