"""One ps's rows of a group without vocabularies: which keys have, get and lose one."""

import functools
from typing import NamedTuple

import tensorflow as tf

from tfps.store.current_rows import CurrentRows
from tfps.store.initializers import InitialRows, unknown_rows
from tfps.store.keyed.eviction import Eviction, FreeRows
from tfps.store.keyed.key_index import KeyIndex, Occurrences
from tfps.store.keyed.row_records import (
    Count,
    KeyCounts,
    RowRecords,
    hashes_in,
    last_updates_in,
    place_of,
    tables_in,
    uses_in,
)
from tfps.store.keyed_layout import KeyedLayout

_TABLES_PER_WORD = 4  # of 16 bits
_NEVER = tf.int32.max  # the last update of rows that miss none


class AskedKeys(NamedTuple):
    """Distinct keys whose rows a ps is asked for."""

    hashes: tf.Tensor  # `[u]` int64
    tables: tf.Tensor  # index of each one's table, `[u]` int32
    occurrences: tf.Tensor  # how often each is asked for, `[u]` int32


class KeyMessage:
    """Writes keys into one tensor, and reads them again."""

    def __init__(self, tables: int, counts: bool):
        self._says_tables = tables > 1
        self._counts = counts

    def write(self, keys: AskedKeys) -> tf.Tensor:
        pieces = [keys.hashes]
        if self._says_tables:
            short = tf.cast(keys.tables, tf.int16)
            padded = tf.pad(short, [[0, -tf.size(short) % _TABLES_PER_WORD]])
            words = tf.reshape(padded, [-1, _TABLES_PER_WORD])
            pieces = [tf.size(keys.hashes, tf.int64)[tf.newaxis], *pieces]
            pieces.append(tf.bitcast(words, tf.int64))
        if self._counts:
            pieces.append(tf.cast(keys.occurrences, tf.int64))
        return tf.concat(pieces, 0)

    def read(self, message: tf.Tensor) -> AskedKeys:
        if self._says_tables:
            count = tf.cast(message[0], tf.int32)
            message = message[1:]
        else:
            count = tf.size(message) // 2 if self._counts else tf.size(message)
        hashes = message[:count]
        tables = tf.zeros([count], tf.int32)
        if self._says_tables:
            words = -(-count // _TABLES_PER_WORD)
            short = tf.bitcast(message[count : count + words], tf.int16)
            tables = tf.cast(tf.reshape(short, [-1])[:count], tf.int32)
            message = message[words:]
        occurrences = tf.ones([count], tf.int32)
        if self._counts:
            occurrences = tf.cast(message[count:], tf.int32)
        return AskedKeys(hashes, tables, occurrences)


class SavedKeys(NamedTuple):
    """Rows with their records, as they are saved and restored."""

    hashes: tf.Tensor  # of their keys, `[n]` int64, ascending
    records: tf.Tensor  # table, number of updates after the last one, how many, `[n, 3]` int32
    lines: tf.Tensor  # with slots, as last updated, `[n, lines, width]` of `StoredRow`


class KeyedPart:
    """What one ps holds of a group.

    Only one caller at a time may change it: all methods but `find` are called while the part's
    mutex is held, and all under the device of the ps.
    """

    def __init__(self, layout: KeyedLayout, part: int, rows: CurrentRows, seed: int):
        options, first = layout.options, len(layout.tables)
        self._layout, self._part, self._rows = layout, part, rows
        self._initial = InitialRows(layout.tables, seed)
        self._index = KeyIndex()
        self.records = RowRecords(layout.capacity)
        self._free = FreeRows(first, layout.capacity, options.loses_rows)
        self._occurrences = Occurrences(layout.capacity) if options.counts else None
        self.counts = KeyCounts(first)
        pull = functools.partial(rows.pull, part)
        self.eviction = Eviction(layout, self._index, self.records, self._free, self.counts, pull)
        numbers = tf.range(first, dtype=tf.int64)
        unknown = rows.begun(tf.constant(unknown_rows(layout.tables)))
        rows.set(part, numbers, unknown, tf.fill([first], _NEVER))
        none = tf.zeros([first], tf.int64), tf.range(first), tf.zeros([], tf.int64)
        self.records.begin(numbers, *none, tf.zeros([first, 2], tf.int32))

    def find(self, keys: AskedKeys) -> tf.Tensor:
        """Places of keys `[u]` int64; of keys without a row, that of their table's unknown ones."""
        found = self._index.find(keys.hashes)
        return tf.where(found < 0, tf.cast(keys.tables, tf.int64), found)

    def admit(self, keys: AskedKeys, step: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        """Counts keys that have no row, and gives rows to those that occurred often enough."""
        # Returns what `find` gives then, and what is done once all is written. A row that was found
        # and has made room for another is given as well: `eviction.times` shows that some did.
        known = self.find(keys)
        missing = tf.where(known < len(self._layout.tables))[:, 0]
        counted = tf.no_op()
        if self._occurrences:
            asked = tf.gather(keys.hashes, missing), tf.gather(keys.occurrences, missing)
            seen, counted = self._occurrences.add(*asked)
            missing = tf.boolean_mask(missing, seen >= self._layout.options.admit_after)
        tables = tf.gather(keys.tables, missing)
        with tf.control_dependencies([self.eviction.make_room(self.counts.by_table(tables))]):
            fits = self._fits(tables)
        refused = self.counts.by_table(tf.boolean_mask(tables, ~fits))
        missing = tf.boolean_mask(missing, fits)
        places, begun = self._begin(
            tf.gather(keys.hashes, missing), tf.gather(keys.tables, missing), step
        )
        admitted = self.counts.by_table(tf.gather(keys.tables, missing))
        noted = self.counts.add(
            {Count.ROWS: admitted, Count.ADMITTED: admitted, Count.REFUSED: refused}
        )
        known = tf.tensor_scatter_nd_update(known, missing[:, tf.newaxis], places)
        return known, tf.group(counted, begun, noted)

    def use(self, places: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        """Records an update of rows by their places; returns the indices of those still there."""
        there, dropped, written = self.records.use(places, step)
        counted = self.counts.add({Count.DROPPED: self.counts.by_table(dropped)})
        return there, tf.group(written, counted)

    def in_order(self) -> tuple[tf.Tensor, tf.Tensor]:
        """All keys that have a row: their hashes, ascending, and their rows, `[n]` int64 both."""
        first = len(self._layout.tables)
        records = self.records.read(tf.range(first, self._free.used.read_value()))
        live = tf.where(tables_in(records) >= 0)[:, 0]
        hashes = tf.gather(hashes_in(records), live)
        order = tf.argsort(hashes)
        return tf.gather(hashes, order), tf.gather(live, order) + first

    def sample(self, table: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
        """Numbers of some rows of a table, evenly spread, `[n]` int64."""
        _, rows = self.in_order()
        is_its = tf.equal(tables_in(self.records.read(rows)), table)
        mine = tf.boolean_mask(rows, is_its)
        stride = tf.maximum(1, -(-tf.size(mine) // most))
        return mine[::stride]

    def saved_since(self, least: tf.Tensor) -> tuple[tf.Tensor, SavedKeys]:
        """Hashes of all keys, ascending, and the rows assigned or changed since that update."""
        hashes, rows = self.in_order()
        last = tf.cast(last_updates_in(self.records.read(rows)), tf.int64)
        late = tf.where(last >= least)[:, 0]
        return hashes, self.saved(tf.gather(hashes, late), tf.gather(rows, late))

    def counted_since(self, least: tf.Tensor) -> tf.Tensor:
        """How many rows each table has, and how many `saved_since` gives, `[2, tables]` int64."""
        first = len(self._layout.tables)
        records = self.records.read(tf.range(first, self._free.used.read_value()))
        records = tf.boolean_mask(records, tables_in(records) >= 0)
        is_late = tf.cast(last_updates_in(records), tf.int64) >= least
        tables = tables_in(records)
        late = tf.boolean_mask(tables, is_late)
        return tf.stack([self.counts.by_table(tables), self.counts.by_table(late)])

    def put(self, saved: SavedKeys) -> tf.Operation:
        """Gives rows to keys that have none, for which there must be room."""
        tables, last, uses = tf.unstack(saved.records, 3, 1)
        rows, generation = self._free.take(tf.size(saved.hashes, tf.int64))
        used = tf.stack([last, uses], 1)
        writes = self._rows.set(self._part, rows, saved.lines, last)
        writes.append(self.records.begin(rows, saved.hashes, tables, generation, used))
        with tf.control_dependencies(writes):
            put = self._index.insert(saved.hashes, place_of(rows, generation))
        return tf.group(put, self.counts.add({Count.ROWS: self.counts.by_table(tables)}))

    def begin(
        self, hashes: tf.Tensor, table: tf.Tensor, rows: tf.Tensor, steps: tf.Tensor
    ) -> tf.Operation:
        """Gives rows with these values to keys of a table that have none; there must be room."""
        last = tf.fill(tf.shape(hashes), tf.cast(steps, tf.int32))
        tables = tf.fill(tf.shape(hashes), table)
        records = tf.stack([tables, last, tf.zeros_like(last)], 1)
        return self.put(SavedKeys(hashes, records, self._rows.begun(rows)))

    def clear(self) -> tf.Operation:
        first = tf.constant(len(self._layout.tables), tf.int64)
        cleared = [self.records.clear_all(first, self._free.used.read_value())]
        with tf.control_dependencies(cleared):
            cleared += [self._index.clear(), self._free.clear(), self.counts.forget_rows()]
        cleared += [self.eviction.begin_again(), self.eviction.times.assign_add(1).op]
        if self._occurrences:
            cleared.append(self._occurrences.clear())
        return tf.group(*cleared)

    def saved(self, hashes: tf.Tensor, rows: tf.Tensor) -> SavedKeys:
        records = self.records.read(rows)
        kept = tf.stack([tables_in(records), last_updates_in(records), uses_in(records)], 1)
        return SavedKeys(hashes, kept, self._rows.stored(self._part, rows))

    def _fits(self, tables: tf.Tensor) -> tf.Tensor:
        """For which new keys there is room, by the table of each `[n]`, bool."""
        rows = self.counts.rows()
        left = tf.constant(self._layout.quotas, tf.int64) - rows
        of_table = tf.one_hot(tables, len(self._layout.tables), dtype=tf.int64)
        before = tf.reduce_sum(tf.cumsum(of_table, 0, exclusive=True) * of_table, 1)
        fits = before < tf.gather(left, tables)
        # Of one table there may have been restored more rows than it is to have now.
        room = self._layout.capacity - len(self._layout.tables) - tf.reduce_sum(rows)
        return fits & (tf.cumsum(tf.cast(fits, tf.int64), exclusive=True) < room)

    def _begin(
        self, hashes: tf.Tensor, tables: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Operation]:
        """Gives keys rows with their initial values; returns their places, and what is done."""
        rows, generation = self._free.take(tf.size(hashes, tf.int64))
        places = place_of(rows, generation)
        last = tf.fill(tf.shape(tables), tf.cast(step, tf.int32))
        lines = self._rows.begun(self._initial.draw(hashes, tables))
        writes = self._rows.set(self._part, rows, lines, last)
        used = tf.stack([last, tf.zeros_like(last)], 1)
        writes.append(self.records.begin(rows, hashes, tables, generation, used))
        # A pull that finds a key finds its row written.
        with tf.control_dependencies(writes):
            return places, self._index.insert(hashes, places)
