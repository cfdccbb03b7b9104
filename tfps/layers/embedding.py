"""An embedding of features with many ids per record: bags of ids, combined into one vector."""

from typing import Any

import keras
import tensorflow as tf

from tfps import arguments
from tfps.layers import id_check
from tfps.layers.bags import BagEmbedding, Padding
from tfps.layers.id_check import refuse_outside

OUT_OF_RANGE = ("error", "default", "hash")


@keras.saving.register_keras_serializable("tfps")
class EmbeddingTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` that refuses ids outside its table.

    Keras counts a negative id from the table's end.
    """

    def __init__(self, input_dim: int, output_dim: int, row_dtype: str = "float32", **kwargs: Any):
        super().__init__(input_dim, output_dim, **kwargs)
        self.row_dtype = row_dtype

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return super().call(check_ids(inputs, self.input_dim, f"{self.path}/embeddings"))


def check_ids(ids: tf.Tensor, rows: int, table: str) -> tf.Tensor:
    """The ids; it fails at one outside `[0, rows)`, naming it and the table."""
    flat = tf.reshape(ids, [-1])
    fine = refuse_outside(
        flat, tf.fill(tf.shape(flat), tf.cast(rows, ids.dtype)), lambda _: tf.constant(table)
    )
    return ids + tf.cast(fine, ids.dtype)


@keras.saving.register_keras_serializable("tfps")
class Embedding(BagEmbedding):
    """Looks up ids in a table and combines the rows of each bag of ids.

    An ordinary Keras layer: alone it holds its table itself; in a tfps task its table lives on the
    ps, where only the rows of real ids are pulled and trained. Called several times, it looks up
    the same table: features share a table by sharing the layer.

    Inputs and outputs:

    - `tf.RaggedTensor` `[batch, (n)]`: `[batch, dim]`; without a combiner ragged
      `[batch, (n), dim]`.
    - Dense ids `[..., n]`: `[..., dim]`, the bags along the last axis; without a combiner ids of
      any shape give `[*ids.shape, dim]`.
    - Ids that are `padding`, or where `mask` is False, are left out: they are not looked up, and
      without a combiner their rows are zeros, and masked for later layers.

    A bag without ids gives zeros. Bags are combined as by `tf.nn.safe_embedding_lookup_sparse`:
    with weights w and rows e, `sum` is Σ w e, `mean` is Σ w e / Σ w, and `sqrtn` is Σ w e / √(Σ
    w²), where `mean` and `sqrtn` leave out ids with weights of 0 and less. Without weights every w
    is 1. Gradients flow to the weights, too.

    Integer ids are int32 or int64. Strings are hashed by `tf.strings.to_hash_bucket_fast`: to the
    same row in every process, on every machine and in the exported model.
    """

    @arguments.checked
    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        combiner: str | None = None,
        embeddings_initializer: Any = "uniform",
        padding: Padding = None,
        out_of_range: str = "error",
        row_dtype: str = "float32",
        **kwargs: Any,
    ):
        """Makes the layer.

        Args:
            input_dim: Number of ids.
            output_dim: Length of a row.
            combiner: None, `sum`, `mean` or `sqrtn`.
            embeddings_initializer: Keras initializer of the rows.
            padding: An id that stands for no id, such as 0, -1 or `""`; None when there is none.
            out_of_range: For integer ids outside `[0, input_dim)`: `error` stops and names id and
                table; `default` looks up one more row, the table's last, shared by all such
                ids; `hash` gives each of them a row, by a hash that is the same everywhere.
            row_dtype: `float32` or `bfloat16`, as of `tfps.DynamicEmbedding`.
            **kwargs: Of `keras.layers.Layer`.

        Raises:
            UserError: If an option is none of its choices.
        """
        super().__init__(output_dim, combiner, padding, row_dtype, **kwargs)
        self._refuse_less_than_one(input_dim=input_dim)
        self._refuse_other("out_of_range", out_of_range, OUT_OF_RANGE)
        self.input_dim = input_dim
        self.out_of_range = out_of_range
        self.table = EmbeddingTable(
            input_dim + (out_of_range == "default"),
            output_dim,
            **self._table_options(embeddings_initializer),
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "out_of_range": self.out_of_range,
        }

    def _row_ids(self, ids: tf.Tensor) -> tf.Tensor:
        if ids.dtype == tf.string:
            return tf.strings.to_hash_bucket_fast(ids, self.input_dim)
        ids = tf.cast(ids, tf.int64)
        if self.out_of_range == "error":
            return ids
        inside = (ids >= 0) & (ids < self.input_dim)
        if self.out_of_range == "default":
            return tf.where(inside, ids, tf.constant(self.input_dim, tf.int64))
        return tf.where(inside, ids, _hashed(ids, self.input_dim))


def _hashed(ids: tf.Tensor, rows: int) -> tf.Tensor:
    """Rows `[0, rows)`, equally many ids for each."""
    mixed = id_check.mix(tf.bitcast(ids, tf.uint64))
    return tf.bitcast(mixed % tf.constant(rows, tf.uint64), tf.int64)
