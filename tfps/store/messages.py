"""What travels between workers and ps, and in which form."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.optimizers.update_rule import Tensors, UpdateRule

Writes = list[tf.Tensor | tf.Operation]  # that are there once something is written
BY_NORM = ("clipnorm", "global_clipnorm")
# It takes some 25 operations for each ps and step, and with many ps the graph becomes large.
MOST_PS = 4


@dataclasses.dataclass(frozen=True)
class RowGradients:
    """What a push has of each row of a group: its gradient, and squares behind it if needed.

    A batch gives a gradient for each occurrence of an id. The gradient of the row is their sum.
    With `train.repeated_ids=each` their squares are summed as well, for optimizers that divide by
    squares and for norms, as Keras does with a `tf.IndexedSlices`.
    """

    dim: int
    rule: UpdateRule
    is_each: bool = False

    @property
    def has_squares(self) -> bool:
        return self.is_each and (self.rule.takes_squares or self.rule.clip in BY_NORM)

    @property
    def width(self) -> int:
        return 2 * self.dim if self.has_squares else self.dim

    def of_occurrences(self, gradient: tf.Tensor) -> tf.Tensor:
        """What is summed by row, `[n, width]`, from gradients of occurrences `[n, dim]`."""
        if self.is_each and self.rule.clip == "clipvalue":
            gradient = clip_by_value(gradient, self.rule)
        return tf.concat([gradient, tf.square(gradient)], 1) if self.has_squares else gradient

    def clipped_by_value(self, rows: tf.Tensor) -> tf.Tensor:
        if self.is_each:  # it was, before it was summed
            return rows
        return clip_by_value(rows, self.rule)

    def gradient(self, rows: tf.Tensor) -> tf.Tensor:
        return rows[:, : self.dim] if self.has_squares else rows

    def squares(self, rows: tf.Tensor) -> tf.Tensor:
        """The squares whose sum is that of a norm, `[u, dim]`."""
        return rows[:, self.dim :] if self.has_squares else tf.square(rows)

    def squares_for_rule(self, rows: tf.Tensor) -> tf.Tensor | None:
        """What `UpdateRule.sparse` takes, `[u, dim]`; None for the square of the gradient."""
        # Keras multiplies slices by the scale of a global norm, and TensorFlow makes a dense tensor
        # of them for it: the optimizer squares the sum.
        is_dense = self.rule.clip == "global_clipnorm"
        return rows[:, self.dim :] if self.has_squares and not is_dense else None

    def sum(
        self, rows: tf.Tensor, row: tf.Tensor, count: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """The weighted sum of the values of each row, `[count, width]`; see `sum_rows`."""
        if not self.has_squares:
            return sum_rows(rows, row, count, weights)
        gradient = sum_rows(rows[:, : self.dim], row, count, weights)
        squares = sum_rows(rows[:, self.dim :], row, count, tf.square(weights))
        return tf.concat([gradient, squares], 1)

    def scaled(self, rows: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """Rows `[u, width]` of a gradient times a scale, a scalar or `[u, 1]`."""
        if not self.has_squares:
            return rows * scale
        return tf.concat([rows[:, : self.dim] * scale, rows[:, self.dim :] * tf.square(scale)], 1)


def clip_by_value(gradient: tf.Tensor, rule: UpdateRule) -> tf.Tensor:
    limit = rule.config["clipvalue"]
    return tf.clip_by_value(gradient, -limit, limit)


def sum_rows(
    values: tf.Tensor, row: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor | None = None
) -> tf.Tensor:
    """The sum of the values `[n, dim]` of each row, `[rows, dim]`; `row` is each one's, int32."""
    # A sparse matrix of ones times the values: 0.6 of the time that unsorted_segment_sum takes for
    # dim 16 and less, and the same for larger ones.
    count = tf.size(row)
    return tf.raw_ops.SparseTensorDenseMatMul(
        a_indices=tf.stack([row, tf.range(count)], 1),
        a_values=tf.ones([count]) if weights is None else weights,
        a_shape=tf.cast(tf.stack([rows, count]), tf.int64),
        b=values,
    )


@dataclasses.dataclass(frozen=True)
class Packing:
    """Joins the tensors that go from one task to another.

    Each tensor that travels is a remote call of its own, which costs more than a copy. Not used
    within one process, where none travels, and for more than `MOST_PS` ps.
    """

    is_used: bool = True

    def pack(self, parts: Sequence[Tensors]) -> list[tf.Tensor]:
        """What travels, under the device that sends: one tensor, or one for each part."""
        if self.is_used:
            return [_joined([flat(x) for part in parts for x in part])]
        return [_joined(part) for part in parts]

    def unpack(self, arrived: Tensors, sizes: Sequence[int | tf.Tensor | None]) -> list[tf.Tensor]:
        """The parts of what has arrived, `[n]`, under the device that receives."""
        # `sizes` are numbers or scalar int32 tensors of that device; None for what is left, where
        # those behind it are numbers. A part that begins and ends at a multiple of 64 bytes is not
        # copied.
        if not self.is_used:
            return list(arrived)
        [packed] = arrived
        if len(sizes) == 1:
            return [packed]
        parts = []
        for size, (begin, end) in zip(sizes, _bounds(sizes), strict=True):
            parts.append(packed[:0] if isinstance(size, int) and not size else packed[begin:end])
            if isinstance(size, int):
                parts[-1].set_shape([size])
        return parts

    def last(self, arrived: Tensors, size: int) -> tf.Tensor:
        """The last part alone, `[size]`, which may say how large others are."""
        part = arrived[-1][-size:] if self.is_used else arrived[-1]
        part.set_shape([size])
        return part


def bits_of(numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Numbers `[n]` that travel among values of a narrower dtype, bit by bit, `[m]`."""
    return tf.reshape(tf.bitcast(numbers, dtype), [-1])


def numbers_of(bits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The numbers `[n]` of a dtype, from what `bits_of` made of them."""
    each = size_of_bits(1, dtype, bits.dtype)
    return tf.bitcast(tf.reshape(bits, [-1, each]) if each > 1 else bits, dtype)


def size_of_bits(numbers: Any, dtype: tf.DType, among: tf.DType) -> Any:
    """How many values `bits_of` makes of that many numbers; an int or a tensor."""
    return numbers * (dtype.size // among.size)


def _bounds(sizes: Sequence[int | tf.Tensor | None]) -> list[tuple[Any, Any]]:
    """Begin and end of each part; from the end where that needs no operation."""
    known = len(sizes)
    while known and isinstance(sizes[known - 1], int):
        known -= 1
    begins = list(itertools.accumulate(sizes[: known - 1], initial=0)) if known else []
    behind = list(itertools.accumulate(reversed(sizes[known:])))
    begins += [-values for values in reversed(behind)]
    ends = [*begins[1:], None]
    # What ends where nothing follows ends at the end.
    return [
        (begin, None if isinstance(end, int) and not end else end)
        for begin, end in zip(begins, ends, strict=True)
    ]


def flat(tensor: tf.Tensor) -> tf.Tensor:
    # An operation for each tensor counts: each is in all of a closure's unrolled steps.
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def _joined(tensors: Tensors) -> tf.Tensor:
    return tensors[0] if len(tensors) == 1 else tf.concat(list(tensors), 0)


@dataclasses.dataclass(frozen=True)
class Wire:
    """Casts values for their way over the network; both ends compute in float32.

    Call `send` under the device that sends and `receive` under the one that receives, so that the
    narrow value travels. In one process the values are cast all the same: a run has the same
    numbers with and without a cluster.
    """

    dtype: str

    @property
    def value_bytes(self) -> int:
        return int(tf.as_dtype(self.dtype).size)

    def send(self, value: tf.Tensor) -> tf.Tensor:
        """A float32 value as it travels, rounded to nearest."""
        return tf.cast(value, self.dtype)

    def receive(self, value: tf.Tensor) -> tf.Tensor:
        """What has arrived, float32, on the receiving device even where nothing is cast."""
        # What waits for it then waits there, and for no message of its own.
        return tf.identity(tf.cast(value, tf.float32))


EXACT = Wire("float32")


class PulledRows(NamedTuple):
    """The distinct rows that a batch asked for."""

    ids: tf.Tensor  # in the group, `[u]`
    rows: tf.Tensor  # `[u, dim]`
    inverse: tf.Tensor  # for every id asked for, the index of its row, `[n]` int32
    # For every ps, how it knows its rows: their numbers within its part, `[u_k]`. Of tables without
    # a vocabulary, the message that asks for their keys until they are pulled, then their places,
    # which the ps has found and keeps.
    owned: list[tf.Tensor]
    where: list[tf.Tensor]  # for every ps, the indices of its rows in `rows`, `[u_k]` int32
    tables: tf.Tensor | None = None  # index of each row's table, `[u]`, if its id does not show it


class ReadRows(NamedTuple):
    """What one ps has read of the rows that it was asked for."""

    owned: tf.Tensor  # as in `PulledRows`, `[u]`; on the ps that has found them
    rows: tf.Tensor  # as they travel, `[u, dim]`, or `[u, size]` of `StoredRow`


class SentSteps(NamedTuple):
    """What a worker's steps add to rows of one ps, on its way there."""

    rows: tf.Tensor  # their numbers within that ps's part, or their places there, `[u]`
    increment: tf.Tensor  # of them and their slots, `[u, size]`
    updates: list[tf.Tensor]  # how many steps touched each, `[u]`; empty where no slot needs it


class SentRows(NamedTuple):
    """The gradient of rows of one ps on its way there."""

    rows: tf.Tensor  # as in `SentSteps`
    gradient: tf.Tensor  # `[u, width]` of `RowGradients`


class PartGradients(NamedTuple):
    """A gradient as it lies on one ps."""

    dense: list[tf.Tensor]  # `[n]` float32; empty for a model without any
    groups: list[SentRows]  # of distinct rows of each group of tables, float32


class Pulled(NamedTuple):
    """What one batch needs of the parameters."""

    dense: list[tf.Tensor]
    state: list[tf.Tensor]
    groups: list[PulledRows]
    lookups: list[Lookup]
    # Updates before the pull, by index of the ps: of the one that counts staleness, and of those
    # where the learning rate or the state needs it.
    versions: dict[int, tf.Tensor]
    loss_scale: tf.Tensor | None  # multiplies the loss, divides the gradients; None for nothing


class Note(NamedTuple):
    """What travels to the first ps with a push, for somebody else there."""

    numbers: tf.Tensor  # `[n]` float64, of a known length, on the worker
    deliver: Callable[[tf.Tensor], Any]


class Gradients(NamedTuple):
    """What a batch gave."""

    pulled: Pulled
    dense: Tensors
    rows: Tensors  # by group, `[n, width]` of its `RowGradients`
    state: Tensors
