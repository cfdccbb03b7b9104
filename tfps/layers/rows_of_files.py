"""Initial rows of a table that files hold with the ids, or the keys, that they belong to."""

from typing import Any, NoReturn

import keras

from tfps import arguments
from tfps.errors import UserError
from tfps.layers.bags import initializer_of


@keras.saving.register_keras_serializable("tfps")
class RowsOfFiles(keras.initializers.Initializer):
    """Begins a table with the rows that Parquet or TFRecord files name, on parameter servers.

    A Parquet file has a column `key` and a column `vector` of lists of numbers; a record of a
    TFRecord file has the features `key` and `vector`. Keys are ids of the table, of a
    `tfps.DynamicEmbedding` any int64 or, with `key_dtype="string"`, strings. Each stands once in
    all files. The chief reads them, some at a time, whenever a job or a chief begins.

    Rows that no file names begin as another initializer says; so does a key of a table without a
    vocabulary that has lost its row and comes again.
    """

    @arguments.checked
    def __init__(self, path: str, otherwise: Any = "uniform"):
        """Notes them.

        Args:
            path: A file, a glob, or a directory with files that have `.tfrecord` in their names or
                `.parquet` at their ends; local or `gs://`.
            otherwise: Keras initializer of all other rows.
        """
        self.path = path
        self.otherwise = initializer_of(otherwise, "RowsOfFiles(): otherwise=")

    def __call__(self, shape: tuple[int, int], dtype: Any = None) -> NoReturn:
        """Refuses to make a matrix.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"the rows of {self.path} are for a table on parameter servers, but this one, of "
            f"{list(shape)}, is kept by Keras; leave it out of train.dense_table_bytes, and train "
            "with trainer.task or cloud.local"
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal initializer."""
        return {
            "path": self.path,
            "otherwise": keras.initializers.serialize(self.otherwise),
        }
