"""A table that is a layer of its own, and checks the ids it is asked for."""

import keras
import tensorflow as tf

from tfps.refusal import refusal


@keras.saving.register_keras_serializable("tfps")
class EmbeddingTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` that refuses ids outside its table.

    Keras takes a negative id for one counted from the table's end.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Rows `[*ids.shape, output_dim]` of ids of any shape, int32 or int64.

        Raises:
            tf.errors.InvalidArgumentError: Names the first id that lies outside, and the table.
        """
        return super().call(refuse_outside(inputs, self.input_dim, f"{self.path}/embeddings"))


def refuse_outside(ids: tf.Tensor, rows: int, table: str) -> tf.Tensor:
    """The ids themselves; asking for one outside `[0, rows)` fails, naming it and the table."""
    inside = (ids >= 0) & (ids < rows)

    def message() -> tf.Tensor:
        flat = tf.reshape(ids, [-1])
        bad = flat[tf.argmin(tf.cast(tf.reshape(inside, [-1]), tf.int32))]
        return tf.strings.format(
            "id {} is outside table {}, which has rows 0 to {}",
            (bad, tf.constant(table), rows - 1),
        )

    return ids + tf.cast(refusal(tf.reduce_all(inside), message), ids.dtype)
