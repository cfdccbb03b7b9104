"""Initial rows of a table that are given and not drawn, such as pretrained ones."""

from collections.abc import Callable
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError
from tfps.layers.bags import initializer_of


class RowsOfIds(keras.initializers.Initializer):
    """Initializes a table with a function of its ids.

    It gets a few ids at a time, so a table may be larger than the memory of any task:
    `RowsOfIds(lambda ids: pretrained[ids])` with `pretrained` a `np.memmap` reads a file. A matrix
    in memory needs none: `keras.initializers.Constant(matrix)`.
    """

    @arguments.checked
    def __init__(self, function: Callable[[np.ndarray], np.ndarray]):
        """Notes the function.

        Args:
            function: Given ids `[n]` int64, returns their rows `[n, dim]`. The chief, the evaluator
                and, in `allreduce`, every replica call it; it must return the same to all.
        """
        self.function = function

    def __call__(self, shape: tuple[int, int], dtype: Any = None) -> tf.Tensor:
        """All rows, for a table that is kept dense."""
        return tf.cast(self.function(np.arange(shape[0])), dtype or keras.config.floatx())

    def get_config(self) -> dict[str, Any]:
        return {"function": self.function}


@keras.saving.register_keras_serializable("tfps")
class RowsOfFiles(keras.initializers.Initializer):
    """Begins a table with the rows in Parquet or TFRecord files, on parameter servers.

    A Parquet file has a column `key` and a column `vector` of lists of numbers; a record of a
    TFRecord file has the features `key` and `vector`. Keys are ids of the table, of a
    `tfps.DynamicEmbedding` any int64 or, with `key_dtype="string"`, strings. Each is once in all
    files. The chief reads them, some at a time, whenever a job or a chief begins.

    Rows of no file begin as another initializer says; so does a key of a table without a vocabulary
    that has lost its row and comes again.
    """

    @arguments.checked
    def __init__(self, path: str, otherwise: Any = "uniform"):
        """Notes the files.

        Args:
            path: A file, a glob, or a directory with files that have `.tfrecord` in their names or
                `.parquet` at their ends; local or `gs://`.
            otherwise: Keras initializer of all other rows.
        """
        self.path = path
        self.otherwise = initializer_of(otherwise, "RowsOfFiles(): otherwise=")

    def __call__(self, shape: tuple[int, int], dtype: Any = None) -> NoReturn:
        """Raises a `UserError`: these rows are on parameter servers."""
        raise UserError(
            f"the rows of {self.path} are for a table on parameter servers, but this one, of "
            f"{list(shape)}, is kept by Keras; leave it out of train.dense_table_bytes, and train "
            "with trainer.task or cloud.local"
        )

    def get_config(self) -> dict[str, Any]:
        return {"path": self.path, "otherwise": keras.initializers.serialize(self.otherwise)}
