"""Tensors whose rows lie on all ps, and the runs of rows that checkpoints hold."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.optimizers.update_rule import Slot, Tensors, Update
from tfps.store.group_layout import GroupLayout

_PADDING = 128  # rows whose marks are counted together
_UNTOUCHED, _TOUCHED = np.uint8(0), np.uint8(1)
_TOUCHED_BEFORE = np.uint8(2)
# A ps holds a few chunks and its own values while it saves or restores. Above 32 MiB glibc gives
# memory back as soon as it is freed; smaller blocks stay with each of TensorFlow's threads.
CHUNK_BYTES = 48 << 20
_LARGEST_TURN_BYTES, _MOST_TURNS = 256 << 20, 128
_PLACE_BYTES = 64  # of temporary values for each row of a table that one process reads


class TouchedCounts(NamedTuple):
    """How many rows are marked."""

    by_run: tf.Tensor  # in each run of rows, `[runs]` int32
    by_table: tf.Tensor  # of each of the group's tables, `[tables]` int64


class TouchedRows:
    """A byte for each row of one ps's part of a group: 1 once the row was changed.

    It is 2 of a row that was changed between the last two times that marks were forgotten only.

    A save looks at the marks frozen, in a second variable. A push marks rows after it has written
    them. So freezing or forgetting the marks first and reading the rows then misses no change, also
    where a worker that was taken for lost pushes late. Call the methods under the device of the ps.
    """

    def __init__(self, layout: GroupLayout, part: int, device: str):
        self.tables = [table.name for table in layout.tables]
        self._layout, self._part = layout, part
        first, end = layout.bounds(part)
        self._size = -(-(end - first) // _PADDING) * _PADDING
        with tf.device(device):
            self._live = tf.Variable(self._none(), trainable=False)
            nothing = tf.zeros([0], tf.uint8)
            self._frozen = tf.Variable(nothing, trainable=False, shape=tf.TensorShape(None))

    def mark(self, rows: tf.Tensor, writes: Sequence[tf.Operation] = ()) -> tf.Operation:
        """Marks rows of the part, `[n]`, after operations that change them."""
        with tf.control_dependencies(writes):
            return scatter(self._live, rows, _TOUCHED)

    def forget(self) -> None:
        marks = self._read()
        before = tf.bitwise.bitwise_and(marks, _TOUCHED) * _TOUCHED_BEFORE
        # A push may mark rows meanwhile: what is added leaves them marked.
        self._live.assign_add(before - marks, read_value=False)

    def freeze(self, with_before: tf.Tensor) -> None:
        """Freezes the marks; a bool `[]` says whether also of rows that were touched before."""
        wanted = tf.where(with_before, _TOUCHED | _TOUCHED_BEFORE, _TOUCHED)
        marks = tf.bitwise.bitwise_and(self._read(), wanted)
        self._frozen.assign(tf.minimum(marks, _TOUCHED), read_value=False)

    def thaw(self) -> None:
        self._frozen.assign(tf.zeros([0], tf.uint8), read_value=False)

    def counts(self, stride: int) -> TouchedCounts:
        """How many frozen marks each run of `stride` rows has, a multiple of 128."""
        marks = self._frozen.read_value()
        # Without a wider copy of the marks: 8 of them are the bits of one number, 16 such numbers'
        # counts fit a byte.
        words = tf.bitcast(tf.reshape(marks, [-1, 8]), tf.int64)
        by_word = tf.raw_ops.PopulationCount(x=words)
        counts = tf.cast(tf.reduce_sum(tf.reshape(by_word, [-1, _PADDING // 8]), 1), tf.int32)
        whole_runs = tf.pad(counts, [[0, -self._size % stride // _PADDING]])
        by_run = tf.reduce_sum(tf.reshape(whole_runs, [-1, stride // _PADDING]), 1)
        return TouchedCounts(by_run, self._by_table(marks, counts))

    def select(self, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """The rows with frozen marks in a range, `[n]` int64."""
        marks = self._frozen.read_value()[first:end]
        return tf.reshape(tf.where(marks), [-1]) + first

    def _by_table(self, marks: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """How many marks each table has, `[tables]` int64; `counts` are those of 128 rows each."""
        first, end = self._layout.bounds(self._part)
        if first == end:
            return tf.zeros([len(self.tables)], tf.int64)
        before = tf.cumsum(tf.cast(counts, tf.int64), exclusive=True)
        runs = tf.reshape(marks, [-1, _PADDING])

        def before_rows(rows: tf.Tensor) -> tf.Tensor:
            places = tf.clip_by_value(rows, first, end) - first
            run = tf.minimum(places // _PADDING, self._size // _PADDING - 1)
            left = (places - run * _PADDING)[:, tf.newaxis]
            is_before = tf.range(_PADDING, dtype=tf.int64) < left
            in_run = tf.where(is_before, tf.gather(runs, run), _UNTOUCHED)
            return tf.gather(before, run) + tf.reduce_sum(tf.cast(in_run, tf.int64), 1)

        # In every bucket the tables follow each other, and behind the last is padding.
        buckets = tf.range(*self._layout.buckets(self._part), dtype=tf.int64)
        starts = tf.map_fn(
            lambda offset: tf.reduce_sum(before_rows(self._layout.first_rows(offset, buckets))),
            tf.constant(self._layout.offsets, tf.int64),
        )
        ends = tf.reduce_sum(before_rows((buckets + 1) * self._layout.bucket_rows))
        return tf.concat([starts[1:], [ends]], 0) - starts

    def _read(self) -> tf.Tensor:
        live = self._live.handle
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=live)]):
            return self._live.read_value()

    def _none(self) -> tf.Tensor:
        return tf.zeros([self._size], tf.uint8)


def gather(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """Rows of a variable, `[*rows.shape, …]`."""
    return tf.raw_ops.ResourceGather(resource=variable.handle, indices=rows, dtype=variable.dtype)


def gather_first(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """The first line of rows of a variable `[n, lines, width]`, `[u, width]`."""
    if tf.executing_eagerly():
        # Of a variable on another task TensorFlow does not know the shape then, and refuses.
        return gather(variable, rows)[:, 0]
    if variable.shape.num_elements() > tf.int32.max:
        rows = tf.cast(rows, tf.int64)  # the operation counts values, not rows
    return tf.gather_nd(variable, tf.stack([rows, tf.zeros_like(rows)], 1))


def scatter(variable: tf.Variable, rows: tf.Tensor, values: Any) -> tf.Operation:
    """Overwrites rows of a variable in place."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values)


def save_now(prefix: str, names: Sequence[str], specs: Sequence[str], tensors: Tensors) -> None:
    """Writes tensors where they are, and returns when they are written."""
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=specs, tensors=list(tensors)
    )
    # A task answers an operation before it is done; a value that is asked for afterwards waits for
    # that, and fails if it failed.
    tf.identity(tf.constant(True)).numpy()


def rows_at_once(row_bytes: int, rows: int = 0) -> int:
    """How many rows of a table one process reads at once."""
    # Where each turn costs, `rows` is how many there are: they take 128 turns at most, as long as a
    # turn takes no more than 256 MiB.
    each = max(row_bytes, _PLACE_BYTES)
    in_few_turns = min(-(-rows // _MOST_TURNS), _LARGEST_TURN_BYTES // each)
    return max(1, CHUNK_BYTES // each, in_few_turns)


@dataclasses.dataclass(frozen=True)
class TensorSlice:
    """A run of rows of a logical tensor, held by a variable of one ps."""

    name: str
    shape: tuple[int, ...]
    first: int
    count: int
    device: str
    variable: tf.Variable  # `[count, *shape[1:]]`
    touched: TouchedRows | None = None  # of tables; None where that is not known
    lines: int = 1  # rows of the tensor that are one of a table, with its slots

    @property
    def row_values(self) -> int:
        return self.lines * math.prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        return self.row_values * int(self.variable.dtype.size)

    @property
    def rows(self) -> tuple[int, int]:
        """First row of the table and the one after the last."""
        return self.first // self.lines, (self.first + self.count) // self.lines

    @property
    def total_bytes(self) -> int:
        first, end = self.rows
        return (end - first) * self.row_bytes

    def chunks(self) -> Iterator[tuple[int, int]]:
        """First row and number of rows of each chunk in which the run is saved and restored."""
        # Chunks end where a piece ends and at multiples of the rows that `CHUNK_BYTES` hold,
        # counted from the logical tensor's first row: so a chunk of a checkpoint made with another
        # number of ps overlaps few of these, and no ps has to read another's whole piece for a
        # part.
        stride = self.lines * max(1, CHUNK_BYTES // max(1, self.row_bytes))
        first, end = self.first, self.first + self.count
        while first < end:
            until = min(end, first - first % stride + stride)
            yield first, until - first
            first = until

    def chunk_bytes(self, count: int) -> int:
        return count * int(self.variable.dtype.size) * math.prod(self.shape[1:])

    def slice_spec(self, first: int, count: int) -> str:
        """A chunk as `tf.raw_ops.SaveV2` wants it: the shape, then start,length by dimension."""
        whole = " ".join(str(size) for size in self.shape)
        rest = ":-" * (len(self.shape) - 1)
        return f"{whole} {first},{count}{rest}"

    def value(self, first: int, count: int) -> tf.Tensor:
        """A chunk's values, which share the variable's memory; under its device."""
        flat = tf.reshape(self.read(), [-1])  # slices of one dimension share memory with the whole
        size = math.prod(self.shape[1:])
        start = first - self.first
        return tf.reshape(flat[start * size : (start + count) * size], [count, *self.shape[1:]])

    def read(self) -> tf.Tensor:
        """The whole run, which is the variable's memory and no copy; under its device."""
        # A variable that was written by rows otherwise answers a read with a copy.
        handle = self.variable.handle
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=handle)]):
            return self.variable.read_value()

    def write(self, first: int, value: tf.Tensor) -> tf.Operation:
        """Overwrites the rows of a chunk in place; under its device."""
        # A scatter would copy the variable first, and name each row by a number of 8 bytes.
        start = (first - self.first) // self.lines
        value = self._of_rows(value)
        return tf.raw_ops.ResourceStridedSliceAssign(
            ref=self.variable.handle,
            begin=tf.constant([start], tf.int64),
            end=tf.constant([start + value.shape[0]], tf.int64),
            strides=tf.constant([1], tf.int64),
            value=value,
        )

    def write_rows(self, rows: tf.Tensor, values: tf.Tensor) -> None:
        """Overwrites rows of the table `[n]` with slots, and marks them; under its device."""
        scatter(self.variable, rows, self._of_rows(values))
        if self.touched:
            self.touched.mark(rows)

    def _of_rows(self, values: tf.Tensor) -> tf.Tensor:
        """Values as the variable has them: rows of a table are `[n, lines, width]`."""
        return tf.reshape(values, [-1, *self.variable.shape[1:]])


class PartitionedVariable:
    """A tensor cut along its first dimension, one run of rows per ps, with slots of its shape."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        bounds: Callable[[int], tuple[int, int]],
        devices: Sequence[str],
        create: Callable[[int], tf.Variable],
        slots: Mapping[str, Slot] | None = None,
    ):
        self.parts: list[tf.Variable] = []
        self._name, self._shape, self._bounds, self._devices = name, shape, bounds, devices
        slots = slots or {}
        self._slot_names = list(slots)
        self._slots: list[list[tf.Variable]] = []
        for part, device in enumerate(devices):
            first, end = bounds(part)
            with tf.device(device):
                self.parts.append(create(part))
                starts = [
                    tf.fill([end - first, *shape[1:]], tf.constant(slot.start, tf.float32))
                    for slot in slots.values()
                ]
                self._slots.append([tf.Variable(start, trainable=False) for start in starts])

    def variables(self, part: int) -> list[tf.Variable]:
        return [self.parts[part], *self._slots[part]]

    def update(self, part: int, gradient: tf.Tensor, step: tf.Tensor) -> Update:
        return Update(self.parts[part], self._slots[part], gradient, step)

    def slices(self) -> list[TensorSlice]:
        names = [self._name, *(f"{self._name}/{slot}" for slot in self._slot_names)]
        slices = []
        for part, device in enumerate(self._devices):
            first, end = self._bounds(part)
            for name, variable in zip(names, [self.parts[part], *self._slots[part]], strict=True):
                slices.append(TensorSlice(name, self._shape, first, end - first, device, variable))
        return slices
