"""Where the dense parameters of a model lie: one flat buffer, cut into one part per ps."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class DenseLayout:
    """Variables laid end to end in one flat float32 buffer, cut into equal parts.

    Cuts ignore the variables' own boundaries, so that every ps holds the same number of bytes.

    Attributes:
        names: Path of each variable, in order.
        shapes: Shape of each variable.
        parts: Number of parts, one per ps.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parts: int

    @property
    def sizes(self) -> list[int]:
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def total(self) -> int:
        """Number of values of the whole buffer."""
        return sum(self.sizes)

    def bounds(self, part: int) -> tuple[int, int]:
        """First value of a part and the one after its last."""
        return self.total * part // self.parts, self.total * (part + 1) // self.parts

    def spread(self, part: int, values: Sequence[bool]) -> np.ndarray:
        """For every value of a part, what holds for its variable, `[n]` bool.

        Args:
            part: Index of the part.
            values: One per variable.
        """
        return np.repeat(np.asarray(values, bool), self.sizes)[slice(*self.bounds(part))]

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The parts of a whole buffer `[total]`."""
        if self.parts == 1:
            return [flat]
        bounds = map(self.bounds, range(self.parts))
        # One operation for all parts: what is in every step for each ps makes the graph large.
        return tf.split(flat, [end - first for first, end in bounds])

    def join(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The whole buffer `[total]` from its parts."""
        return parts[0] if self.parts == 1 else tf.concat(list(parts), 0)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """Every variable's value from the whole buffer `[total]`."""
        if not self.shapes:
            return []
        pieces = tf.split(flat, self.sizes)
        return [tf.reshape(piece, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
