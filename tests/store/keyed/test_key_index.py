"""The index of one ps, beside a dictionary."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.keyed.key_index import MISSING, KeyIndex

LEAST, GREATEST = -(2**63), 2**63 - 1
RESERVED = [LEAST, LEAST + 1]  # which TensorFlow's table cannot hold
HASHES = tf.TensorSpec([None], tf.int64)


class Index:
    """An index and what must be in it."""

    def __init__(self, seed=0):
        self.index = index = KeyIndex()
        self.draw = np.random.default_rng(seed)
        self.places = {}
        self._next_place = 0
        self.find = tf.function(index.find, autograph=False, input_signature=[HASHES])
        self._insert = _guarded(index.insert, 2)
        self._remove = _guarded(index.remove, 1)
        self._clear = _guarded(index.clear, 0)

    def insert(self, hashes):
        """Gives hashes places that none ever had."""
        places = range(self._next_place, self._next_place + len(hashes))
        self._next_place = places.stop
        self._insert(tf.constant(hashes, tf.int64), tf.constant(list(places), tf.int64))
        self.places.update(zip(hashes, places, strict=True))

    def insert_new(self, count):
        self.insert(self.new_hashes(count))

    def new_hashes(self, count):
        return self.draw.integers(LEAST, GREATEST, count, endpoint=True).tolist()

    def remove(self, hashes):
        self._remove(tf.constant(hashes, tf.int64))
        for each in hashes:
            del self.places[each]

    def clear(self):
        self._clear()
        self.places.clear()

    def check(self, others=()):
        """Everything is found that is there, and nothing that is not."""
        assert int(self.index.size) == len(self.places)
        asked = [*self.places, *others, *self.new_hashes(100)]
        expected = [self.places.get(each, MISSING) for each in asked]
        np.testing.assert_array_equal(self.find(tf.constant(asked, tf.int64)), expected)

    @property
    def buckets(self):
        """Of both tables of TensorFlow's."""
        return [
            int(
                tf.size(
                    tf.raw_ops.LookupTableExportV2(
                        table_handle=each, Tkeys=tf.int64, Tvalues=tf.int64
                    )[0]
                )
            )
            for each in self.index._tables
        ]


def _guarded(change, arguments):
    def changed(*given):
        with tf.control_dependencies([change(*given)]):
            return tf.constant(True)

    return tf.function(changed, autograph=False, input_signature=[HASHES] * arguments)


def test_an_index_grows_through_several_moves():
    index = Index()
    seen = set()
    for _ in range(150):
        index.insert_new(700)
        seen.add(max(index.buckets))
        if len(index.places) % 7000 == 0:
            index.check()
    assert len(seen) > 4
    index.check()
    assert min(index.buckets) == 1 << 12 or len(index.places) < 0.6 * max(index.buckets)


def test_a_batch_larger_than_all_that_is_there():
    index = Index()
    for count in (1, 5_000, 60_000, 3, 200_000, 10):
        index.insert_new(count)
        index.check()


def test_nothing_at_all():
    index = Index()
    index.check()
    index.insert([])
    index.remove([])
    index.check()


@pytest.mark.slow
def test_deletes_without_end_take_no_more_buckets():
    index = Index()
    index.insert_new(2_000)
    gone, most = [], 0
    for turn in range(400):
        oldest = list(index.places)[:500]
        index.remove(oldest)
        index.insert_new(500)
        gone = [*gone, *oldest][-2_000:]
        most = max(most, *index.buckets)
        if turn % 20 == 0:
            index.check(gone)
    index.check(gone)
    # 2,500 keys at most are there when a table is made, with 2.5 buckets for each.
    assert most <= 1 << 14


@pytest.mark.parametrize("batch", [500, 20_000])
def test_an_index_that_was_large_loses_nothing_when_it_grows_again(batch):
    """As its marks make it begin a small table, which is to take what comes while it moves."""
    index = Index()
    for _ in range(2):
        index.insert_new(310_000)
        index.remove(list(index.places))
    index.check()
    while len(index.places) < 100_000:
        index.insert_new(batch)
        if len(index.places) % 20_000 == 0:
            index.check()
    index.check()


@pytest.mark.slow
def test_a_great_batch_while_keys_are_moved():
    index = Index()
    index.insert_new(150_000)
    while not int(index.index._state) >= 2:
        index.insert_new(500)
    index.insert_new(900_000)
    for _ in range(300):
        index.insert_new(500)
    index.check()


def test_keys_are_removed_while_others_are_moved():
    index = Index()
    index.insert_new(100_000)
    turns = 0
    while turns < 30:
        index.remove([*list(index.places)[:1500], *list(index.places)[-500:]])
        index.insert_new(2_000)
        turns += int(index.index._state) >= 2
    index.check()


@pytest.mark.parametrize("moved", [False, True])
def test_the_hashes_that_tensorflows_table_cannot_hold_are_keys_as_others(moved):
    index = Index()
    index.check(RESERVED)
    index.insert([RESERVED[1], 0, GREATEST])
    index.check(RESERVED)
    index.insert([RESERVED[0]])
    if moved:
        index.insert_new(10_000)
    index.check()
    index.remove([RESERVED[1], 0])
    index.check([RESERVED[1], 0])
    index.insert([0, RESERVED[1]])
    index.check()
    index.clear()
    index.check([*RESERVED, 0])


def test_an_index_that_was_cleared_begins_again():
    index = Index()
    for count in (30_000, 100_000):
        index.insert_new(count)
        index.remove(list(index.places)[:1000])
        before = list(index.places)
        index.clear()
        index.check(before)
        assert index.buckets == [1 << 12] * 2
    index.insert_new(10_000)
    index.check()


def test_an_index_is_empty_each_time_that_it_is_cleared():
    """Of few keys, so that TensorFlow's table stays with the buckets that it was given."""
    index = Index()
    for _ in range(4):
        index.insert_new(100)
        before = list(index.places)
        index.clear()
        index.check(before)
        assert index.buckets == [1 << 12] * 2


def test_a_search_beside_a_change_finds_no_wrong_place():
    """And what is there all the time it misses while keys are moved alone."""
    index = Index()
    index.insert_new(20_000)
    stable = list(index.places)
    asked, places = tf.constant(stable, tf.int64), np.array(list(index.places.values()))
    ends, wrong, searches = threading.Event(), [], [0, 0]

    def search():
        while not ends.is_set():
            found = index.find(asked).numpy()
            searches[0] += 1
            searches[1] += bool((found == MISSING).any())
            if not ((found == places) | (found == MISSING)).all():
                wrong.append(found)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        while len(index.places) < 120_000 or searches[0] < 20:
            index.insert_new(1_500)
            index.remove(list(index.places)[-500:])
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not wrong
    np.testing.assert_array_equal(index.find(asked), places)
    index.check()
