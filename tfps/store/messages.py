"""What a batch pulls from the ps and what it gives them."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.optimizers.update_rule import UpdateRule

BY_NORM = ("clipnorm", "global_clipnorm")
# It takes some 25 operations for each ps and step, and with many ps the graph is what is large.
MOST_PS = 4


@dataclasses.dataclass(frozen=True)
class RowGradients:
    """What a push has of each row of a group: its gradient, and squares behind it where needed.

    A batch gives a gradient for each occurrence of an id. The gradient of the row is their sum.
    With `train.repeated_ids=each` their squares are summed as well, for optimizers that divide by
    squares and for norms, as Keras does with a `tf.IndexedSlices`.
    """

    dim: int
    rule: UpdateRule
    is_each: bool = False

    @property
    def has_squares(self) -> bool:
        """Whether there are squares."""
        return self.is_each and (self.rule.takes_squares or self.rule.clip in BY_NORM)

    @property
    def width(self) -> int:
        """Number of values of a row."""
        return 2 * self.dim if self.has_squares else self.dim

    def of_occurrences(self, gradient: tf.Tensor) -> tf.Tensor:
        """What is to be summed by row, `[n, width]`, of the gradients of occurrences `[n, dim]`."""
        if self.is_each and self.rule.clip == "clipvalue":
            gradient = clip_by_value(gradient, self.rule)
        return tf.concat([gradient, tf.square(gradient)], 1) if self.has_squares else gradient

    def clipped_by_value(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[u, width]` of a gradient that the rule clips by value."""
        if self.is_each:  # it was, before it was summed
            return rows
        return clip_by_value(rows, self.rule)

    def gradient(self, rows: tf.Tensor) -> tf.Tensor:
        """The gradient alone, `[u, dim]`."""
        return rows[:, : self.dim] if self.has_squares else rows

    def squares(self, rows: tf.Tensor) -> tf.Tensor:
        """What a norm is the root of the sum of, `[u, dim]`."""
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
        """Rows `[u, width]` of a gradient that is multiplied by a scale, a scalar or `[u, 1]`."""
        if not self.has_squares:
            return rows * scale
        return tf.concat([rows[:, : self.dim] * scale, rows[:, self.dim :] * tf.square(scale)], 1)


def clip_by_value(gradient: tf.Tensor, rule: UpdateRule) -> tf.Tensor:
    """A gradient as `clipvalue` of a rule leaves it."""
    limit = rule.config["clipvalue"]
    return tf.clip_by_value(gradient, -limit, limit)


def sum_rows(
    values: tf.Tensor, row: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor | None = None
) -> tf.Tensor:
    """The sum of the values of each row.

    Args:
        values: `[n, dim]`.
        row: Which row each is of, `[n]` int32.
        rows: Number of rows, scalar int32.
        weights: What each value is multiplied by, `[n]` float32; None for 1.

    Returns:
        `[rows, dim]`.
    """
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
    """Puts together what goes from one task to another.

    Each tensor that travels is a remote call of its own, which costs more than a copy.

    Attributes:
        is_used: Whether tensors are put together; not within one process, where none travels, and
            not for more than `MOST_PS` ps.
    """

    is_used: bool = True

    def pack(self, parts: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """What travels, under the device that sends.

        Args:
            parts: Tensors of one dtype, those of a part to be laid end to end. At its other end
                each part is a tensor.

        Returns:
            One tensor where they are put together, else one for each part.
        """
        if self.is_used:
            return [_joined([_flat(x) for part in parts for x in part])]
        return [_joined(part) for part in parts]

    def unpack(
        self, arrived: Sequence[tf.Tensor], sizes: Sequence[int | tf.Tensor | None]
    ) -> list[tf.Tensor]:
        """The parts of what has arrived, under the device that receives.

        A part that begins and ends at a multiple of 64 bytes is not copied.

        Args:
            sizes: How many values each part has; scalar int32 tensors of that device, or numbers;
                None for what is left, where those behind it are numbers.

        Returns:
            One for each part: `[n]` where they were put together, else as it was packed.
        """
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

    def last(self, arrived: Sequence[tf.Tensor], size: int) -> tf.Tensor:
        """The last part alone, `[size]`, which may say how large others are."""
        part = arrived[-1][-size:] if self.is_used else arrived[-1]
        part.set_shape([size])
        return part


def bits_of(numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Numbers that travel among values of another dtype, bit by bit.

    Args:
        numbers: `[n]`, of a dtype that is at least as wide.

    Returns:
        `[m]` of that dtype; `size_of_bits` says how many.
    """
    return tf.reshape(tf.bitcast(numbers, dtype), [-1])


def numbers_of(bits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The numbers `[n]` of a dtype, of what `bits_of` made of them."""
    each = size_of_bits(1, dtype, bits.dtype)
    return tf.bitcast(tf.reshape(bits, [-1, each]) if each > 1 else bits, dtype)


def size_of_bits(numbers: Any, dtype: tf.DType, among: tf.DType) -> Any:
    """How many values `bits_of` makes of so many numbers; an int or a tensor, as `numbers` is."""
    return numbers * (dtype.size // among.size)


def _bounds(sizes: Sequence[int | tf.Tensor | None]) -> list[tuple[Any, Any]]:
    """Begin and end of each part; from the end where that needs no operation, as it is known."""
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


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    # An operation for each tensor counts: each is in all of a closure's unrolled steps.
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def _joined(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tensors[0] if len(tensors) == 1 else tf.concat(list(tensors), 0)


@dataclasses.dataclass(frozen=True)
class Wire:
    """Casts values for their way over the network; both ends compute in float32.

    `send` must be called under the device that sends and `receive` under the one that receives, so
    that what lies between them, and travels, is the narrow value. In one process the values are
    cast all the same: a run has the same numbers with and without a cluster.

    Attributes:
        dtype: Of what travels: "float32" or "bfloat16".
    """

    dtype: str

    @property
    def value_bytes(self) -> int:
        """Bytes of one value on its way."""
        return int(tf.as_dtype(self.dtype).size)

    def send(self, value: tf.Tensor) -> tf.Tensor:
        """A float32 value as it travels, rounded to nearest."""
        return tf.cast(value, self.dtype)

    def receive(self, value: tf.Tensor) -> tf.Tensor:
        """What has arrived, float32, on the receiving device even where nothing is to be cast.

        What waits for it then waits there, and for no message of its own.
        """
        return tf.identity(tf.cast(value, tf.float32))


EXACT = Wire("float32")


class PulledRows(NamedTuple):
    """The distinct rows that a batch asked for.

    Attributes:
        ids: Their ids in the group `[u]`.
        rows: Their values `[u, dim]`.
        inverse: For every id asked for, the index of its row in `rows`, `[n]` int32.
        owned: For every ps, what its rows are known by there: their numbers within its part,
            `[u_k]`. Of tables without a vocabulary it is the message that asks for their keys until
            they are pulled, and then their places, which the ps has found and keeps.
        where: For every ps, the indices of its rows in `rows`, `[u_k]` int32.
        tables: The index in the group of each row's table, `[u]` int32, where its id does not tell.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    inverse: tf.Tensor
    owned: list[tf.Tensor]
    where: list[tf.Tensor]
    tables: tf.Tensor | None = None


class ReadRows(NamedTuple):
    """What one ps has read of the rows that it was asked for.

    Attributes:
        owned: What the rows are known by there, `[u]`; it is on that ps where it has found them.
        rows: Their values as they travel, `[u, dim]`, or `[u, size]` of `StoredRow`.
    """

    owned: tf.Tensor
    rows: tf.Tensor


class SentSteps(NamedTuple):
    """What a worker's steps add to rows of one ps, on its way there.

    Attributes:
        rows: Their numbers within that ps's part, or their places there, `[u]`.
        increment: What is added to them and their slots, `[u, size]`.
        updates: How many steps touched each, `[u]` int32; empty where no slot asks for it.
    """

    rows: tf.Tensor
    increment: tf.Tensor
    updates: list[tf.Tensor]


class SentRows(NamedTuple):
    """The gradient of rows of one ps on its way there.

    Attributes:
        rows: Their numbers within that ps's part, or their places there, `[u]`.
        gradient: `[u, width]` of `RowGradients`.
    """

    rows: tf.Tensor
    gradient: tf.Tensor


class PartGradients(NamedTuple):
    """A gradient as it lies on one ps.

    Attributes:
        dense: Of that ps's part of the dense parameters, `[n]` float32; empty for a model without
            any.
        groups: Of distinct rows of its part of each group of tables, float32.
    """

    dense: list[tf.Tensor]
    groups: list[SentRows]


class Pulled(NamedTuple):
    """What one batch needs of the parameters.

    Attributes:
        versions: Number of updates before the pull, scalar int64, by the index of the ps: of the
            one that counts staleness, and of those where the learning rate or the state needs it.
        loss_scale: What to multiply the loss by and divide the gradients by, scalar float32; None
            for nothing.
    """

    dense: list[tf.Tensor]
    state: list[tf.Tensor]
    groups: list[PulledRows]
    lookups: list[Lookup]
    versions: dict[int, tf.Tensor]
    loss_scale: tf.Tensor | None


class Note(NamedTuple):
    """What travels to the first ps with a push, for somebody else there.

    Attributes:
        numbers: `[n]` float64, of a known length, on the worker.
    """

    numbers: tf.Tensor
    deliver: Callable[[tf.Tensor], Any]


class Gradients(NamedTuple):
    """What a batch gave.

    Attributes:
        rows: One per group of tables, `[n, width]` of its `RowGradients`.
    """

    pulled: Pulled
    dense: Sequence[tf.Tensor]
    rows: Sequence[tf.Tensor]
    state: Sequence[tf.Tensor]
