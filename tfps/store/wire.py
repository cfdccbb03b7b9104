"""How parameters and gradients travel between workers and ps."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# It takes some 25 operations for each ps and step, and with many ps the graph is what is large.
MOST_PS = 4


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
