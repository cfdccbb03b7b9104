"""A table that is a layer of its own, and checks the ids it is asked for."""

from typing import Any

import keras
import tensorflow as tf

from tfps.layers.id_check import refuse_outside


@keras.saving.register_keras_serializable("tfps")
class EmbeddingTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` that refuses ids outside its table.

    Keras takes a negative id for one counted from the table's end.
    """

    def __init__(self, input_dim: int, output_dim: int, row_dtype: str = "float32", **kwargs: Any):
        super().__init__(input_dim, output_dim, **kwargs)
        self.row_dtype = row_dtype

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Rows `[*ids.shape, output_dim]` of ids of any shape, int32 or int64."""
        return super().call(check_ids(inputs, self.input_dim, f"{self.path}/embeddings"))


def check_ids(ids: tf.Tensor, rows: int, table: str) -> tf.Tensor:
    """Returns the ids; at one outside `[0, rows)` it fails instead, naming it and the table."""
    flat = tf.reshape(ids, [-1])
    fine = refuse_outside(
        flat, tf.fill(tf.shape(flat), tf.cast(rows, ids.dtype)), lambda _: tf.constant(table)
    )
    return ids + tf.cast(fine, ids.dtype)
