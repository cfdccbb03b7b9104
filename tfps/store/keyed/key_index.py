"""From hashes of keys to places of rows, on one ps."""

import uuid
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfps.layers import id_check
from tfps.layers.dynamic_embedding import MOST_OCCURRENCES
from tfps.store.partitioned_variable import gather

_DEPTH = 4
_COUNTERS_PER_ROW = 8  # in each of the depth's lines
_LEAST_BITS, _MOST_BITS = 16, 26
# Odd numbers, with which a hash is spread again for each line. None is a small multiple of another:
# keys that meet in one line would meet in the other.
_FACTORS = (id_check.GOLDEN, *(factor for _, factor in id_check.ROUNDS), 0xD1342543DE82EF95)
assert len(_FACTORS) == _DEPTH
assert MOST_OCCURRENCES < 128
MISSING = -1  # the place of a hash that has none
# TensorFlow's table needs two keys of its own.
_EMPTY = -(1 << 63)
_DELETED = _EMPTY + 1
_LEAST_BUCKETS = 1 << 12
_FULL = 0.6  # of the buckets, used ones and marks, when a larger table takes over
_ROOM = 2.5  # buckets of the larger one for each key, before they are rounded up to a power of 2
_MOVED_AT_LEAST = 8192  # buckets, whenever keys are put in
_MOVED_PER_KEY = 8  # so that a table is moved when an eighth as many keys were put in
_MOVING = 2  # a bit of the state


class Occurrences:
    """Four lines of counters of a byte, eight in each for each row that the ps may have.

    A count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms 2005) with conservative
    updates (Estan and Varghese, SIGCOMM 2002). It never counts too little. When w counters a line
    have counted w/2 occurrences of keys without a row, all counts are halved, so that rare keys are
    forgotten and the sketch does not fill up. Until then the count of a key is too great by one or
    more with a probability of at most (1 - e^-1/2)^4 = 2.4 %, at the very end of such a time.
    """

    def __init__(self, rows: int):
        self._bits = min(_MOST_BITS, max(_LEAST_BITS, (_COUNTERS_PER_ROW * rows).bit_length()))
        self._width = 1 << self._bits
        self._counters = tf.Variable(tf.zeros([_DEPTH * self._width], tf.int8), trainable=False)
        self._counted = tf.Variable(0, dtype=tf.int64, trainable=False)

    def add(self, hashes: tf.Tensor, occurrences: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        """Counts distinct keys; returns how often each has occurred, up to 127, and what writes."""
        bits = tf.bitcast(hashes, tf.uint64)[:, tf.newaxis]
        spread = tf.bitwise.right_shift(
            bits * tf.constant(np.array(_FACTORS, np.uint64)),
            tf.constant(64 - self._bits, tf.uint64),
        )
        lines = tf.range(_DEPTH, dtype=tf.int64) * self._width
        places = tf.bitcast(spread, tf.int64) + lines
        counts = gather(self._counters, places)
        so_far = tf.cast(tf.reduce_min(counts, 1), tf.int32) + occurrences
        now = tf.minimum(so_far, 127)
        updates = tf.cast(tf.broadcast_to(now[:, tf.newaxis], tf.shape(places)), tf.int8)
        with tf.control_dependencies([now]):
            written = tf.raw_ops.ResourceScatterMax(
                resource=self._counters.handle, indices=places, updates=updates
            )
        total = self._counted + tf.reduce_sum(tf.cast(occurrences, tf.int64))
        with tf.control_dependencies([written, total]):
            noted = self._counted.assign(total, read_value=False)
        with tf.control_dependencies([noted]):
            halved = tf.cond(total > self._width // 2, self._halve, lambda: tf.constant(False))
        return now, halved.op

    def clear(self) -> tf.Operation:
        return tf.group(
            self._counters.assign(tf.zeros_like(self._counters), read_value=False),
            self._counted.assign(0, read_value=False),
        )

    def _halve(self) -> tf.Tensor:
        halves = tf.bitwise.right_shift(self._counters.read_value(), tf.constant(1, tf.int8))
        halved = self._counters.assign(halves, read_value=False)
        begun = self._counted.assign(0, read_value=False)
        with tf.control_dependencies([halved, begun]):
            return tf.constant(True)


class KeyIndex:
    """A hash table that grows, and forgets what was deleted, in small steps.

    TensorFlow's own table copies itself as a whole when it grows: 0.2 µs a key, 20 s for 10^8, in
    which nobody else is served. It also keeps a mark for each deleted key, and a search for a
    missing one passes over all of them. So there are two. When the one is full, of keys or of
    marks, new keys go into the other, and with each insertion some of the first are moved;
    meanwhile a search looks into both. A search during a change finds what was there before and is
    there after it; while keys are moved it may miss some.
    """

    def __init__(self) -> None:
        self._tables = [_new_table(), _new_table()]
        self._state = _counter(0)  # which table new keys go into, and whether some are moved there
        self._buckets = _counter(_LEAST_BUCKETS)  # of that table
        self._marks = _counter(0)  # of deleted keys in it, at most
        self._old_buckets = _counter(0)
        self._moved = _counter(0)  # of these
        self.size = _counter(0)
        # The places of the two hashes that no table can hold.
        self._reserved = tf.Variable([MISSING, MISSING], dtype=tf.int64, trainable=False)
        # Called at once, an operation knows the shapes of its inputs; see `_resize`.
        tf.function(self._begin_empty, autograph=False).get_concrete_function()()
        # Traced once, though it is called at several places.
        self._search = tf.function(self._found, autograph=False, reduce_retracing=True)

    def find(self, hashes: tf.Tensor) -> tf.Tensor:
        """Places of hashes `[n]`, int64; `MISSING` for those that have none."""
        return self._search(hashes)

    def insert(self, hashes: tf.Tensor, places: tf.Tensor) -> tf.Operation:
        """Puts in distinct hashes `[n]` that have no place yet."""
        count = tf.size(hashes, tf.int64)
        used = tf.cast(self.size + self._marks + count, tf.float32)
        is_full = used > _FULL * tf.cast(self._buckets.read_value(), tf.float32)
        begun = _do_if(is_full & ~self._is_moving(), lambda: self._begin_to_move(count))
        with tf.control_dependencies([begun]):
            reserved = self._set_reserved(hashes, places)
            put = self._put(hashes, places)
            counted = self.size.assign_add(count, read_value=False)
        with tf.control_dependencies([put, counted, reserved]):
            most = tf.maximum(count * _MOVED_PER_KEY, tf.constant(_MOVED_AT_LEAST, tf.int64))
            moved = _do_if(self._is_moving(), lambda: self._move(most))
        return tf.group(moved)

    def remove(self, hashes: tf.Tensor) -> tf.Operation:
        """Takes out distinct hashes `[n]` that have a place."""
        count = tf.size(hashes, tf.int64)
        kept = tf.boolean_mask(hashes, hashes > _DELETED)
        removed = [
            tf.raw_ops.LookupTableRemoveV2(table_handle=table, keys=kept) for table in self._tables
        ]
        nowhere = tf.fill(tf.shape(hashes), tf.constant(MISSING, tf.int64))
        return tf.group(
            *removed,
            self._set_reserved(hashes, nowhere),
            self.size.assign_sub(count, read_value=False),
            self._marks.assign_add(count, read_value=False),
        )

    def clear(self) -> tf.Operation:
        zeros = [self._state, self._marks, self._old_buckets, self._moved, self.size]
        return tf.group(
            *self._empty_tables(),
            *(each.assign(0, read_value=False) for each in zeros),
            self._buckets.assign(_LEAST_BUCKETS, read_value=False),
            self._reserved.assign([MISSING, MISSING], read_value=False),
        )

    def _begin_empty(self) -> None:
        self._empty_tables()

    def _found(self, hashes: tf.Tensor) -> tf.Tensor:
        is_reserved = hashes <= _DELETED
        safe = tf.where(is_reserved, tf.zeros_like(hashes), hashes)
        first, second = self._tables

        def both(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
            found = _find(new, safe)
            return tf.cond(
                tf.reduce_any(found < 0),
                lambda: tf.where(found < 0, _find(old, safe), found),
                lambda: found,
            )

        branches = [
            lambda: _find(first, safe),
            lambda: _find(second, safe),
            lambda: both(first, second),
            lambda: both(second, first),
        ]
        found = tf.switch_case(tf.cast(self._state.read_value(), tf.int32), branches)
        which = tf.where(is_reserved, hashes - _EMPTY, tf.zeros_like(hashes))
        return tf.where(is_reserved, tf.gather(self._reserved.read_value(), which), found)

    def _is_moving(self) -> tf.Tensor:
        return self._state.read_value() >= _MOVING

    def _empty_tables(self) -> list[tf.Operation]:
        return [_resize(table, tf.constant(_LEAST_BUCKETS, tf.int64)) for table in self._tables]

    def _set_reserved(self, hashes: tf.Tensor, places: tf.Tensor) -> tf.Operation:
        mine = tf.where(hashes <= _DELETED)[:, 0]
        which = tf.gather(hashes, mine)[:, tf.newaxis] - _EMPTY
        return self._reserved.scatter_nd_update(which, tf.gather(places, mine)).op

    def _put(self, hashes: tf.Tensor, places: tf.Tensor) -> tf.Operation:
        kept = tf.where(hashes > _DELETED)[:, 0]
        hashes, places = tf.gather(hashes, kept), tf.gather(places, kept)
        first, second = self._tables
        return self._by_current(
            lambda: _insert(first, hashes, places), lambda: _insert(second, hashes, places)
        )

    def _by_current(
        self, if_first: Callable[[], tf.Operation], if_second: Callable[[], tf.Operation]
    ) -> tf.Operation:
        return tf.cond(self._is_first(), _then_true(if_first), _then_true(if_second)).op

    def _is_first(self) -> tf.Tensor:
        return tf.equal(self._state.read_value() % _MOVING, 0)

    def _begin_to_move(self, count: tf.Tensor) -> tf.Operation:
        """Lets new keys go into the other table, which has room for them all."""
        # Also for those that come while the others are moved, even if they are many compared with
        # what is left of a table that was large.
        first, second = self._tables
        # Not what the table was made with: it has grown if more came at once than it had room for.
        old = tf.cond(
            self._is_first(), lambda: _count_buckets(first), lambda: _count_buckets(second)
        )
        wanted = tf.cast(self.size + count + old // _MOVED_PER_KEY, tf.float64) * _ROOM
        power = tf.math.ceil(tf.math.log(wanted) / tf.math.log(tf.constant(2.0, tf.float64)))
        buckets = tf.maximum(
            tf.bitwise.left_shift(tf.constant(1, tf.int64), tf.cast(power, tf.int64)),
            tf.constant(_LEAST_BUCKETS, tf.int64),
        )
        made = self._by_current(lambda: _resize(second, buckets), lambda: _resize(first, buckets))
        with tf.control_dependencies([made, old]):
            return tf.group(
                self._old_buckets.assign(old, read_value=False),
                self._buckets.assign(buckets, read_value=False),
                self._moved.assign(0, read_value=False),
                self._marks.assign(0, read_value=False),
                self._state.assign(1 - self._state + _MOVING, read_value=False),
            )

    def _move(self, most: tf.Tensor) -> tf.Operation:
        """Moves what is in some buckets of the old table, and frees it after the last."""
        first, second = self._tables
        begin = self._moved.read_value()
        end = tf.minimum(begin + most, self._old_buckets.read_value())
        copied = self._by_current(
            lambda: _copy(second, first, begin, end), lambda: _copy(first, second, begin, end)
        )
        with tf.control_dependencies([copied]):
            noted = self._moved.assign(end, read_value=False)
            is_done = tf.equal(end, self._old_buckets.read_value())
        with tf.control_dependencies([noted]):
            return _do_if(is_done, self._end_to_move)

    def _end_to_move(self) -> tf.Operation:
        first, second = self._tables
        least = tf.constant(_LEAST_BUCKETS, tf.int64)
        # A search that began before looks into the old table still: it finds nothing more there.
        ended = self._state.assign_sub(_MOVING, read_value=False)
        with tf.control_dependencies([ended]):
            return self._by_current(lambda: _resize(second, least), lambda: _resize(first, least))


def _counter(value: int) -> tf.Variable:
    return tf.Variable(value, dtype=tf.int64, trainable=False)


def _new_table() -> tf.Tensor:
    return tf.raw_ops.MutableDenseHashTableV2(
        empty_key=tf.constant(_EMPTY, tf.int64),
        deleted_key=tf.constant(_DELETED, tf.int64),
        value_dtype=tf.int64,
        shared_name=f"keys-{uuid.uuid4()}",
        initial_num_buckets=8,
    )


def _find(table: tf.Tensor, hashes: tf.Tensor) -> tf.Tensor:
    missing = tf.constant(MISSING, tf.int64)
    found = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=hashes, default_value=missing)
    return tf.ensure_shape(found, [None])


def _insert(table: tf.Tensor, hashes: tf.Tensor, places: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=hashes, values=places)


def _resize(table: tf.Tensor, buckets: tf.Tensor) -> tf.Operation:
    """Empties a table and gives it that many buckets, a multiple of the least number."""
    # The table writes into the very memory that it is given, so it must get new memory each time.
    # What `tf.fill` makes of a constant is a constant of the graph: the next call would give it
    # again, with the keys of before, and to both tables the same. What `Empty` gives is new each
    # time; whatever it holds, of it and the least number there is the latter is the minimum.
    shape = tf.cast(tf.stack([buckets // _LEAST_BUCKETS, _LEAST_BUCKETS]), tf.int32)
    memory = [tf.raw_ops.Empty(shape=shape, dtype=tf.int64, init=False) for _ in range(2)]
    memory[0] = tf.minimum(memory[0], tf.constant(_EMPTY, tf.int64))
    # The buckets as the kernel wants them, each key and value a vector of one. When a graph is made
    # of it, TensorFlow wants scalars: so the shape is hidden.
    keys, values = (
        tf.raw_ops.PlaceholderWithDefault(input=tf.reshape(each, [-1, 1]), shape=None)
        for each in memory
    )
    return tf.raw_ops.LookupTableImportV2(table_handle=table, keys=keys, values=values)


def _copy(source: tf.Tensor, target: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Operation:
    keys, places = (each[begin:end] for each in _memory_of(source))
    kept = tf.where(keys > _DELETED)[:, 0]
    return _insert(target, tf.gather(keys, kept), tf.gather(places, kept))


def _count_buckets(table: tf.Tensor) -> tf.Tensor:
    keys, _ = _memory_of(table)
    return tf.size(keys, tf.int64)


def _memory_of(table: tf.Tensor) -> list[tf.Tensor]:
    # What is exported is the table's own memory, not a copy.
    exported = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.int64)
    return [tf.reshape(each, [-1]) for each in exported]


def _do_if(condition: tf.Tensor, do: Callable[[], tf.Operation]) -> tf.Operation:
    return tf.cond(condition, _then_true(do), lambda: tf.constant(False)).op


def _then_true(do: Callable[[], tf.Operation]) -> Callable[[], tf.Tensor]:
    def done() -> tf.Tensor:
        with tf.control_dependencies([do()]):
            return tf.constant(True)

    return done
