"""One embedding table, as a layer of the model declares it."""

import dataclasses

import keras


@dataclasses.dataclass(frozen=True)
class Table:
    """A matrix of parameters of which a step touches few rows.

    Attributes:
        name: Path of its variable in the model.
        rows: Number of rows; ids lie in `[0, rows)`.
        dim: Length of a row, in float32 values.
        initializer: Keras initializer of its rows, or a function of shape and dtype.
    """

    name: str
    rows: int
    dim: int
    initializer: keras.initializers.Initializer
