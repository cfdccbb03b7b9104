"""Each fault that is put into the product is found by the operations beside the reference."""

import collections

import pytest
import tensorflow as tf

from tests.store.keyed.operations import operate
from tfps.store.keyed import key_index
from tfps.store.keyed.eviction import Eviction, FreeRows
from tfps.store.keyed.key_index import MISSING, KeyIndex, Occurrences
from tfps.store.keyed.part import KeyedPart, SavedKeys
from tfps.store.keyed.row_records import RowRecords

OPERATIONS, STEPS = 800, 50  # within which it must be found
QUICK = "a row that two keys have"


def _without_some(find):
    """Misses about an eighth of what it should find."""

    def found(self, hashes):
        is_missed = tf.equal(tf.bitwise.bitwise_and(hashes, 7), 0)
        return tf.where(is_missed, tf.constant(MISSING, tf.int64), find(self, hashes))

    return found


def _taken_again(take):
    """Gives the last number out again next time."""

    def taken(self, count):
        given = take(self, count)
        with tf.control_dependencies(given):
            again = tf.maximum(self.used.read_value() - 1, self._first)
            with tf.control_dependencies([self.used.assign(again, read_value=False)]):
                return tuple(tf.identity(each) for each in given)

    return taken


def _all_but_one_used(use):
    """Changes all rows of a push but the first."""

    def used(self, places, step):
        there, written = use(self, places, step)
        return there[1:], written

    return used


def _all_but_one_dropped(use):
    """Does not count the first of the gradients that come too late."""

    def used(self, places, step):
        there, dropped, written = use(self, places, step)
        return there, dropped[1:], written

    return used


def _whoever_has_it(at):
    """Takes a row that another key has got meanwhile for the same."""

    def found(self, places):
        records, is_same = at(self, places)
        return records, tf.ones_like(is_same)

    return found


def _all_but_one_put(put):
    """Restores all rows but the first."""
    return lambda self, saved: put(self, SavedKeys(*(each[1:] for each in saved)))


def _all_but_one_moved(copy):
    """Moves keys to a larger table, but not those of the first bucket that has one."""
    return lambda source, target, begin, end: copy(source, target, begin + 1, end)


def _the_wrong_way_round(scores):
    """Takes the rows that were used most."""
    return lambda self, records: -scores(self, records)


def _an_update_late(forget):
    """Keeps rows for an update longer."""
    return lambda self, first, least_update: forget(self, first, least_update - 1)


def _kept(remove):
    """Leaves a key that has lost its row in the index."""
    return lambda self, hashes: remove(self, hashes[1:])


def _once_a_message(add):
    """Counts a key once, however often a message asks for it."""
    return lambda self, hashes, occurrences: add(self, hashes, tf.ones_like(occurrences))


FAULTS = {
    "a search that misses a key": (KeyIndex, "find", _without_some, "least recent"),
    QUICK: (FreeRows, "take", _taken_again, "none"),
    "a gradient that is lost": (KeyedPart, "use", _all_but_one_used, "none"),
    "a late gradient that is not counted": (RowRecords, "use", _all_but_one_dropped, "none"),
    "a late gradient for another key": (RowRecords, "_at", _whoever_has_it, "least recent"),
    "a row that is not restored": (KeyedPart, "put", _all_but_one_put, "none"),
    "a key that a growing index loses": (key_index, "_copy", _all_but_one_moved, "none"),
    "a key that is evicted too early": (Eviction, "_scores", _the_wrong_way_round, "least recent"),
    "a row that is forgotten too late": (Eviction, "forget", _an_update_late, "forgotten alone"),
    "a lost key that is still found": (KeyIndex, "remove", _kept, "least recent"),
    "an occurrence that is not counted": (Occurrences, "add", _once_a_message, "admitted late"),
}


@pytest.mark.parametrize(
    "fault",
    [fault if fault == QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS],
)
def test_the_operations_find(monkeypatch, fault):
    owner, name, broken, kind = FAULTS[fault]
    monkeypatch.setattr(owner, name, broken(getattr(owner, name)))
    made = collections.Counter()
    with pytest.raises(AssertionError) as found:
        operate(kind, (1,), OPERATIONS, STEPS, made)
    print(f"{fault}: after {made['operations']} operations: {str(found.value)[:300]}")
