"""One ps's share of a logical tensor."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Piece:
    """A run of rows of a logical tensor, held by a variable of one ps.

    Attributes:
        name: Name of the logical tensor, equal for all its pieces.
        shape: Shape of the logical tensor.
        first: First row of the run.
        count: Rows of the run.
        device: Device of the ps.
        variable: What holds the run, `[count, *shape[1:]]`.
    """

    name: str
    shape: tuple[int, ...]
    first: int
    count: int
    device: str
    variable: tf.Variable

    @property
    def slice_spec(self) -> str:
        """The run as `tf.raw_ops.SaveV2` wants it: the shape, then start,length by dimension."""
        whole = " ".join(str(size) for size in self.shape)
        rest = ":-" * (len(self.shape) - 1)
        return f"{whole} {self.first},{self.count}{rest}"
