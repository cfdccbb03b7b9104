"""Which rows of one ps are lost: to make room, or because their keys do not occur any more."""

from collections.abc import Callable

import tensorflow as tf

from tfps.layers.dynamic_embedding import LEAST_FREQUENT, NONE
from tfps.store.keyed.key_index import KeyIndex
from tfps.store.keyed.row_records import (
    Count,
    KeyCounts,
    RowRecords,
    hashes_in,
    last_updates_in,
    next_generation,
    tables_in,
    uses_in,
)
from tfps.store.keyed_layout import KeyedLayout, reserved_variable
from tfps.store.partitioned_variable import gather, scatter

SLICE_ROWS = 1 << 16  # that are looked at in one go
_SAMPLE = 1 << 16  # rows, by which it is found out which are used least
_SPARE = 20  # one of this many rows of a table is made free at once
_MOST_SLICES = 4  # that are looked at to make room for the keys of one pull
_NONE = tf.int32.min


class FreeRows:
    """Row numbers that keys have lost, the last ones first, then those that none ever had."""

    def __init__(self, first: int, capacity: int, takes_back: bool):
        self._first = first
        self.used = tf.Variable(first, dtype=tf.int64, trainable=False)
        self._generation = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._free = reserved_variable([capacity if takes_back else 1], tf.int64)

    def take(self, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Assigns that many numbers, `[count]` int64; returns their generation, too."""
        free, used = self._count.read_value(), self.used.read_value()
        again = tf.minimum(count, free)
        kept = free - again
        places = tf.range(kept, free)
        old = gather(self._free, places)
        new = tf.range(used, used + count - again)
        generation = next_generation(self._generation.read_value())
        rows = tf.concat([old, new], 0)
        with tf.control_dependencies([rows, generation]):
            noted = [
                self._count.assign(kept, read_value=False),
                self.used.assign(used + count - again, read_value=False),
                self._generation.assign(generation, read_value=False),
            ]
        with tf.control_dependencies(noted):
            return tf.identity(rows), tf.identity(generation)

    def give_back(self, rows: tf.Tensor) -> tf.Operation:
        free = self._count.read_value()
        count = tf.size(rows, tf.int64)
        with tf.control_dependencies([free]):
            written = scatter(self._free, tf.range(free, free + count), rows)
        with tf.control_dependencies([written]):
            return self._count.assign(free + count, read_value=False)

    def clear(self) -> tf.Operation:
        """Takes all numbers back; generations continue, so that no old place is valid."""
        return tf.group(
            self.used.assign(self._first, read_value=False), self._count.assign(0, read_value=False)
        )


class Eviction:
    """Takes rows from keys, one slice of the rows after the other.

    Where a table is full, a sample of 65,536 rows shows how recently, or how often, the twentieth
    part of its rows that is used least was used, and which slices have most of them; up to that
    many rows it is exact. They go as these slices are looked at. Rows lie about as their keys came:
    those of the same age are in few slices, and most slices may have none that goes.
    """

    def __init__(
        self,
        layout: KeyedLayout,
        index: KeyIndex,
        records: RowRecords,
        free: FreeRows,
        counts: KeyCounts,
        rows: Callable[[tf.Tensor], tf.Tensor],
    ):
        quotas, self._options = layout.quotas, layout.options
        self._first = len(quotas)  # the rows before are those of unknown keys
        self._quotas = tf.constant(quotas, tf.int64)
        self._spare = tf.maximum(self._quotas // _SPARE, 1)
        self._index, self._records, self._free = index, records, free
        self._counts, self._rows = counts, rows
        self._was_short = tf.Variable(tf.zeros([len(quotas)], tf.bool), trainable=False)
        self.times = tf.Variable(0, dtype=tf.int64, trainable=False)

    def make_room(self, needed: tf.Tensor) -> tf.Operation:
        """Takes rows from the keys used least, if it must and as far as it may."""
        if self._options.evict_first == NONE:
            return tf.no_op()

        def is_short() -> tf.Tensor:
            return tf.reduce_any(self._missing(needed) > 0)

        def look_for_room() -> tf.Tensor:
            was_short = self._was_short.read_value() | (self._missing(needed) > 0)
            with tf.control_dependencies([self._was_short.assign(was_short, read_value=False)]):
                limits, slices = self._sample(self._wanted(needed))

            def look(turn: tf.Tensor) -> list[tf.Tensor]:
                with tf.control_dependencies([self._look(slices[turn], limits, needed)]):
                    return [turn + 1]

            (turns,) = tf.while_loop(
                lambda turn: (turn < tf.size(slices)) & is_short(),
                look,
                [tf.constant(0)],
                parallel_iterations=1,
            )
            return turns

        return tf.cond(is_short(), look_for_room, lambda: tf.constant(0)).op

    def forget(self, first: tf.Tensor, least_update: tf.Tensor) -> tf.Tensor:
        """Takes rows of a slice from keys of old updates or small norms; returns its end."""
        rows, records = self._slice(tf.maximum(first, self._first))
        goes = tf.cast(last_updates_in(records), tf.int64) < least_update
        if self._options.min_norm > 0:
            is_small = tf.norm(self._rows(rows), axis=1) < self._options.min_norm
            goes |= is_small & (uses_in(records) > 0)
        lost = tf.where(goes & (tables_in(records) >= 0))[:, 0]
        done = self._take(tf.gather(rows, lost), tf.gather(records, lost), Count.FORGOTTEN)
        with tf.control_dependencies([done]):
            return tf.maximum(first, self._first) + tf.size(rows, tf.int64)

    def begin_again(self) -> tf.Operation:
        """Clears which tables were short of rows, after all keys have lost theirs."""
        return self._was_short.assign(tf.zeros_like(self._was_short), read_value=False)

    def _missing(self, needed: tf.Tensor) -> tf.Tensor:
        """How many rows too few each table has free, `[tables]` int64."""
        return self._counts.rows() + needed - self._quotas

    def _wanted(self, needed: tf.Tensor) -> tf.Tensor:
        """How many rows each table should lose, `[tables]` int64."""
        # Also those that were short once and are nearly full again: else many tables would make
        # room at different times, one or the other in every step.
        wanted = tf.maximum(self._missing(needed) + self._spare, 0)
        return tf.where(self._was_short.read_value(), wanted, tf.zeros_like(wanted))

    def _look(self, first: tf.Tensor, limits: tf.Tensor, needed: tf.Tensor) -> tf.Operation:
        """Takes rows of a slice from keys whose scores are within their table's limit."""
        wanted = self._wanted(needed)
        rows, records = self._slice(first)
        tables, scores = tables_in(records), self._scores(records)
        candidates = tf.where(_is_least(tables, scores, limits))[:, 0]
        # Where more have the limit's score than are to go, those with a smaller one go first.
        candidates = tf.gather(candidates, tf.argsort(tf.gather(scores, candidates), stable=True))
        of_table = tf.one_hot(tf.gather(tables, candidates), len(self._quotas), dtype=tf.int32)
        before = tf.reduce_sum(tf.cumsum(of_table, 0, exclusive=True) * of_table, 1)
        most = tf.gather(wanted, tf.gather(tables, candidates))
        lost = tf.boolean_mask(candidates, tf.cast(before, tf.int64) < most)
        return self._take(tf.gather(rows, lost), tf.gather(records, lost), Count.EVICTED)

    def _sample(self, wanted: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Each table's highest score that may go, and the first rows of the slices with most."""
        used = self._free.used.read_value()
        stride = tf.maximum(-(-(used - self._first) // _SAMPLE), 1)
        # Others each time, so that no row is passed over for ever.
        numbers = tf.range(self._first + self.times.read_value() % stride, used, stride)
        records = self._records.read(numbers)
        tables, scores = tables_in(records), self._scores(records)
        rows = tf.cast(self._counts.rows(), tf.float64)
        shares = tf.math.divide_no_nan(tf.cast(wanted, tf.float64), rows)
        limits = []
        for table in range(len(self._quotas)):
            mine = tf.sort(tf.boolean_mask(scores, tf.equal(tables, table)))
            goes = tf.math.ceil(tf.cast(tf.size(mine), tf.float64) * shares[table])
            place = tf.minimum(tf.cast(goes, tf.int32), tf.size(mine))
            limits.append(tf.concat([[_NONE], mine], 0)[place])
        stacked = tf.stack(limits)
        is_least = tf.cast(_is_least(tables, scores, stacked), tf.int32)
        slices = tf.cast(-(-(used - self._first) // SLICE_ROWS), tf.int32)
        of_slice = (numbers - self._first) // SLICE_ROWS
        by_slice = tf.math.unsorted_segment_sum(is_least, of_slice, slices)
        _, most = tf.math.top_k(by_slice, tf.minimum(slices, _MOST_SLICES))
        return stacked, self._first + tf.cast(most, tf.int64) * SLICE_ROWS

    def _slice(self, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = tf.minimum(first + SLICE_ROWS, self._free.used.read_value())
        rows = tf.range(first, tf.maximum(first, end))
        return rows, self._records.read(rows)

    def _scores(self, records: tf.Tensor) -> tf.Tensor:
        """What rows are compared by, `[n]` int32: those with the least go first."""
        if self._options.evict_first == LEAST_FREQUENT:
            return uses_in(records)
        return last_updates_in(records)

    def _take(self, rows: tf.Tensor, records: tf.Tensor, why: Count) -> tf.Operation:
        by_table = self._counts.by_table(tables_in(records))
        with tf.control_dependencies([rows, records]):
            removed = self._index.remove(hashes_in(records))
        # Between the two: a pull that finds one of these keys has read the count before, and one
        # that reads what another key has written there sees by then that it must look again.
        with tf.control_dependencies([removed]):
            counted = self.times.assign_add(1, read_value=False)
        with tf.control_dependencies([counted]):
            return tf.group(
                self._records.clear(rows, records),
                self._free.give_back(rows),
                self._counts.add({Count.ROWS: -by_table, why: by_table}),
            )


def _is_least(tables: tf.Tensor, scores: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Which rows are within the limit of their table, `[n]` bool; negative tables are nobody's."""
    return (tables >= 0) & (scores <= tf.gather(limits, tf.maximum(tables, 0)))
