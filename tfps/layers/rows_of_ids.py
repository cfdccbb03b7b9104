"""Initial rows of a table that are given and not drawn, such as pretrained ones."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps import arguments


class RowsOfIds(keras.initializers.Initializer):
    """Initializes a table with what a function says of its ids.

    The function is asked for a few ids at a time, so a table may be larger than the memory of any
    task: `RowsOfIds(lambda ids: pretrained[ids])` with `pretrained` a `np.memmap` reads a file. A
    matrix that is in memory needs none: `keras.initializers.Constant(matrix)`.
    """

    @arguments.checked
    def __init__(self, function: Callable[[np.ndarray], np.ndarray]):
        """Notes the function.

        Args:
            function: Given ids `[n]` int64, returns their rows `[n, dim]`. It is called by the
                chief and the evaluator, and in `allreduce` by every replica, and must return the
                same to all.
        """
        self.function = function

    def __call__(self, shape: tuple[int, int], dtype: Any = None) -> tf.Tensor:
        """All rows, for a table that is kept dense."""
        return tf.cast(self.function(np.arange(shape[0])), dtype or keras.config.floatx())

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal initializer."""
        return {"function": self.function}
