"""What a ps records of each row: whose it is, and how it was used."""

import enum

import tensorflow as tf

from tfps.store.keyed_layout import reserved_variable
from tfps.store.partitioned_variable import gather, scatter

_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1
_GENERATIONS = 1 << 22
_HASH, _TABLE, _GENERATION, _LAST, _USES = slice(0, 2), 2, 3, 4, 5
WIDTH = 6
_GONE = -1  # instead of the table of a row that its key has lost
_CLEARED_ROWS = 1 << 16  # at once, where all rows are taken from their keys


class Count(enum.IntEnum):
    """Which of a table's numbers."""

    ROWS = 0  # it has now
    ADMITTED = 1  # rows that keys were given
    EVICTED = 2  # rows that made room for others
    FORGOTTEN = 3  # rows of keys that did not occur any more, or whose norm was small
    REFUSED = 4  # times that a key had occurred often enough, but there was no room
    DROPPED = 5  # gradients of keys that had no row, or had lost it when they came


class KeyCounts:
    """Counts by table."""

    def __init__(self, tables: int):
        self._tables = tables
        self._variable = tf.Variable(tf.zeros([len(Count), tables], tf.int64), trainable=False)

    def read(self) -> tf.Tensor:
        return self._variable.read_value()

    def rows(self) -> tf.Tensor:
        return self._variable.read_value()[Count.ROWS]

    def by_table(self, tables: tf.Tensor) -> tf.Tensor:
        """How many of some keys each table has, `[tables]` int64."""
        ones = tf.ones_like(tables, tf.int64)
        return tf.math.unsorted_segment_sum(ones, tables, self._tables)

    def add(self, added: dict[Count, tf.Tensor]) -> tf.Operation:
        """Adds `[tables]` to each of some numbers."""
        nothing = tf.zeros([self._tables], tf.int64)
        both = tf.stack([added.get(each, nothing) for each in Count])
        return self._variable.assign_add(both, read_value=False)

    def forget_rows(self) -> tf.Operation:
        return self._variable[Count.ROWS].assign(tf.zeros([self._tables], tf.int64)).op


def place_of(rows: tf.Tensor, generation: tf.Tensor) -> tf.Tensor:
    """Places as one int64 each, which name a row and its generation."""
    # A row that one key has lost is assigned to another: a late push with an old place finds
    # another generation there.
    return rows + tf.bitwise.left_shift(generation, tf.constant(_ROW_BITS, tf.int64))


def rows_of(places: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(places, tf.constant(_ROW_MASK, tf.int64))


def next_generation(generation: tf.Tensor) -> tf.Tensor:
    """The one after another; after the last comes 1 again."""
    return generation % (_GENERATIONS - 1) + 1


class RowRecords:
    """Six numbers for each row of one ps, which lie together: looking at all is one access."""

    def __init__(self, capacity: int):
        self._variable = reserved_variable([capacity, WIDTH], tf.int32)

    def begin(
        self,
        rows: tf.Tensor,
        hashes: tf.Tensor,
        tables: tf.Tensor,
        generation: tf.Tensor,
        used: tf.Tensor,
    ) -> tf.Operation:
        """Gives rows to keys; `used` are last updates and their numbers so far, `[n, 2]` int32."""
        generations = tf.fill(tf.shape(tables), tf.cast(generation, tf.int32))
        whose = tf.stack([tables, generations], 1)
        return self._write(rows, tf.concat([tf.bitcast(hashes, tf.int32), whose, used], 1))

    def use(self, places: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Operation]:
        """Records an update of the rows at places `[n]` that a pull gave."""
        # Returns the indices of those whose keys have them still, `[k]` int64; the tables of the
        # others, `[n - k]` int32, which are those of the keys that have the rows now or had them
        # last; and what writes.
        found, is_same = self._at(places)
        is_there = is_same & (_generations(places) > 0)
        there = tf.where(is_there)[:, 0]
        kept = tf.gather(found, there)
        last = tf.maximum(kept[:, _LAST], tf.cast(step, tf.int32) + 1)
        used = tf.stack([last, kept[:, _USES] + 1], 1)
        rows = tf.gather(rows_of(places), there)
        written = self._write(rows, tf.concat([kept[:, :_LAST], used], 1))
        return there, _last_tables(tf.boolean_mask(found, ~is_there)), written

    def tables_of(self, places: tf.Tensor) -> tf.Tensor:
        """The tables of the rows of places, `[n]` int32; -1 where they are not there any more."""
        found, is_same = self._at(places)
        return tf.where(is_same, tables_in(found), _GONE)

    def clear(self, rows: tf.Tensor, records: tf.Tensor) -> tf.Operation:
        """Takes rows `[n]` with these records from their keys."""
        # A negative number for nobody's rows still shows whose they were.
        tables = tf.bitwise.invert(_last_tables(records))
        nothing = tf.zeros_like(tables)
        columns = [nothing, nothing, tables, nothing, nothing, nothing]
        return self._write(rows, tf.stack(columns, 1))

    def clear_all(self, first: tf.Tensor, end: tf.Tensor) -> tf.Operation:
        """Takes all rows from a first one up to an end, scalar int64, from their keys."""

        def clear(begin: tf.Tensor) -> list[tf.Tensor]:
            rows = tf.range(begin, tf.minimum(begin + _CLEARED_ROWS, end))
            with tf.control_dependencies([self.clear(rows, self.read(rows))]):
                return [begin + _CLEARED_ROWS]

        (done,) = tf.while_loop(lambda begin: begin < end, clear, [first], parallel_iterations=1)
        return done.op

    def read(self, rows: tf.Tensor) -> tf.Tensor:
        """The numbers of rows, `[n, 6]` int32."""
        return gather(self._variable, rows)

    def _at(self, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Records of the rows of places, `[n, 6]`, and which are of the places' generation."""
        found = self.read(rows_of(places))
        return found, tf.equal(found[:, _GENERATION], tf.cast(_generations(places), tf.int32))

    def _write(self, rows: tf.Tensor, records: tf.Tensor) -> tf.Operation:
        return scatter(self._variable, rows, records)


def hashes_in(records: tf.Tensor) -> tf.Tensor:
    """The hashes of keys, `[n]` int64, in records `[n, 6]`."""
    return tf.bitcast(records[:, _HASH], tf.int64)


def tables_in(records: tf.Tensor) -> tf.Tensor:
    """The tables of keys, `[n]` int32, in records; negative for nobody's."""
    return records[:, _TABLE]


def last_updates_in(records: tf.Tensor) -> tf.Tensor:
    """How many updates there were after each row's last one, `[n]` int32, in records."""
    return records[:, _LAST]


def uses_in(records: tf.Tensor) -> tf.Tensor:
    """How many updates changed each row, `[n]` int32, in records."""
    return records[:, _USES]


def _last_tables(records: tf.Tensor) -> tf.Tensor:
    """The tables of the keys that have the rows or had them last, `[n]`, in records."""
    tables = tables_in(records)
    return tf.maximum(tables, tf.bitwise.invert(tables))


def _generations(places: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(places, tf.constant(_ROW_BITS, tf.int64))
