"""A row of a table on its ps: its values and the slots of its optimizer, line by line."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.optimizers.update_rule import Tensors, UpdateRule

# What a signature means that does not say it, as those of rows of float32 do not.
UNSAID = {"row_dtype": "float32", "slots_per_row": 0}
_FLOAT_BYTES = 4  # of a float32, in which all is computed


def draw_noise(shape: tf.Tensor, stream: int, number: tf.Tensor) -> tf.Tensor:
    """Int32 evenly distributed from 0 to 65,535, the same for the same stream and number."""
    size = tf.reduce_prod(shape)
    seed = tf.stack([tf.constant(stream, tf.int64), number])
    # To draw bits costs more than all else: of 32 each half is the noise of one value.
    drawn = tf.random.stateless_uniform(
        [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32
    )
    halves = tf.reshape(tf.bitcast(drawn, tf.uint16), [-1])[:size]
    return tf.cast(tf.reshape(halves, shape), tf.int32)


def round_at_random(values: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """One of the two bfloat16 values next to each float32 value, the nearer the likelier."""
    # Rounded to the nearest, a value that moves in steps below half of its last bit would never
    # move; rounded at random it moves as far on average (Gupta et al., 2015, "Deep Learning with
    # Limited Numerical Precision"). What bfloat16 has stays as it is. Beyond its greatest value, of
    # 3.39e38, there is infinity alone, as for values that are rounded to the nearest.
    # A bfloat16 is the upper half of a float32, which is the second one in memory: noise in the
    # lower half carries over into it as often as that half says.
    moved = tf.bitcast(values, tf.int32) + noise
    return tf.bitcast(moved, tf.bfloat16)[..., 1]


@dataclasses.dataclass(frozen=True)
class StoredRow:
    """A row with its slots as `lines` lines of `width` values of `dtype`.

    The first line has the row's own values, and behind them the slots with a single value per
    row: a pull fetches that line alone. Each slot with as many values as the row follows in a
    line of its own. Slots are always float32: where the rows are bfloat16, the bits of each of a
    slot's values take the place of two. All is computed in float32, where a row with its slots is
    flat, `[size]`: its values and then those of each slot.
    """

    dim: int
    single: int  # slots that have a single value of a row
    whole: int  # slots that have as many values as the row; no rule has slots of both kinds
    dtype: str = "float32"  # of the rows; or "bfloat16"

    def __post_init__(self) -> None:
        assert not (self.single and self.whole), "the lines would differ in their widths"

    @classmethod
    def of(cls, dim: int, rule: UpdateRule, dtype: str) -> "StoredRow":
        return cls(dim, rule.slots_per_row, len(rule.slots) - rule.slots_per_row, dtype)

    @classmethod
    def of_signature(cls, dim: int, group: Mapping[str, Any]) -> "StoredRow":
        said = {**UNSAID, **group}
        single = said["slots_per_row"]
        return cls(dim, single, len(said["slots"]) - single, said["row_dtype"])

    def signature(self) -> dict[str, Any]:
        """What a checkpoint says of a row, if it is not one of float32."""
        return {} if self.dtype == UNSAID["row_dtype"] else {"row_dtype": self.dtype}

    @property
    def lines(self) -> int:
        return 1 + self._places * self.whole

    @property
    def width(self) -> int:
        return self.dim + self._places * self.single

    @property
    def size(self) -> int:
        """Number of float32 values of a row with its slots."""
        return sum(self._sizes)

    @property
    def float_bytes(self) -> int:
        """Bytes of the row with its slots as they are computed with."""
        return self.size * _FLOAT_BYTES

    @property
    def value_bytes(self) -> int:
        return self.dim * self._item_bytes

    @property
    def bytes(self) -> int:
        return self.lines * self.width * self._item_bytes

    def decode(self, lines: Tensors) -> list[tf.Tensor]:
        """Rows `[u, dim]` and slots, `[u, 1]` or `[u, dim]`, float32; the first line may do."""
        first, single = lines[0], []
        if self.single:
            single = tf.split(self._floats(first[:, self.dim :]), self.single, 1)
            first = first[:, : self.dim]
        parts = [lines[k : k + self._places] for k in range(1, len(lines), self._places)]
        whole = [self._floats(tf.concat(part, 1) if part[1:] else part[0]) for part in parts]
        return [tf.cast(first, tf.float32), *single, *whole]

    def encode(self, values: Tensors, noise: tf.Tensor | None = None) -> list[tf.Tensor]:
        """The lines of rows and their slots, `[u, width]`; without noise rounded to the nearest."""
        rows, *slots = values
        rows = tf.cast(rows, self.dtype) if noise is None else round_at_random(rows, noise)
        bits = [self._bits(slot) for slot in slots]
        if self.single:
            rows = tf.concat([rows, *bits[: self.single]], 1)
        whole = [tf.split(slot, self._places, 1) for slot in bits[self.single :]]
        return [rows, *(line for lines in whole for line in lines)]

    def decode_flat(self, lines: tf.Tensor) -> tf.Tensor:
        """Rows with their slots, `[u, size]`, from how they are stored, `[u, lines, width]`."""
        if self._places == 1:
            return tf.reshape(lines, [-1, self.size])
        return self.join(self.decode(tf.unstack(lines, self.lines, 1)))

    def split(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The rows and each slot, from rows with their slots `[u, size]`."""
        return tf.split(flat, self._sizes, 1) if self._sizes[1:] else [flat]

    def join(self, values: Tensors) -> tf.Tensor:
        """Rows with their slots `[u, size]`, from the rows and each slot."""
        return tf.concat(values, 1) if values[1:] else values[0]

    @property
    def _sizes(self) -> list[int]:
        return [self.dim, *[1] * self.single, *[self.dim] * self.whole]

    @property
    def _places(self) -> int:
        """How many values one float32 takes the place of."""
        return _FLOAT_BYTES // self._item_bytes

    @property
    def _item_bytes(self) -> int:
        return int(tf.as_dtype(self.dtype).size)

    def _floats(self, bits: tf.Tensor) -> tf.Tensor:
        """Float32 values from the values `[u, n]` in whose place they stand."""
        if self._places == 1:
            return bits
        size = bits.shape[1] // self._places
        return tf.bitcast(tf.reshape(bits, [-1, size, self._places]), tf.float32)

    def _bits(self, values: tf.Tensor) -> tf.Tensor:
        if self._places == 1:
            return values
        size = values.shape[1] * self._places
        return tf.reshape(tf.bitcast(values, self.dtype), [-1, size])
