"""An embedding of features with many ids per record: bags of ids, combined into one vector."""

from typing import Any

import keras
import tensorflow as tf

from tfps.errors import UserError
from tfps.layers import splitmix64
from tfps.layers.embedding_table import EmbeddingTable
from tfps.layers.id_check import WEIGHTS_MISSING, fail_unless

COMBINERS = (None, "sum", "mean", "sqrtn")
OUT_OF_RANGE = ("error", "default", "hash")

Padding = int | str | None


@keras.saving.register_keras_serializable("tfps")
class Embedding(keras.layers.Layer):
    """Looks up ids in a table and combines the rows of each bag of ids.

    An ordinary Keras layer: alone it holds its table itself; in a tfps task its table lives on the
    ps, where only the rows of real ids are pulled and trained. Called several times, it looks up
    the same table: features share a table by sharing the layer.

    What it is called with, and what it returns:

    - `tf.RaggedTensor` `[batch, (n)]`: `[batch, dim]`; without a combiner ragged
      `[batch, (n), dim]`.
    - Dense ids `[..., n]`: `[..., dim]`, the bags lying along the last axis; without a combiner
      ids of any shape give `[*ids.shape, dim]`.
    - Ids that are `padding`, or where `mask` is False, are left out: they are not looked up, and
      without a combiner their rows are zeros, and masked for the layers behind.

    A bag without ids gives zeros. Bags are combined as by `tf.nn.safe_embedding_lookup_sparse`:
    with weights w and rows e, `sum` is Σ w e, `mean` is Σ w e / Σ w, and `sqrtn` is
    Σ w e / √(Σ w²), where `mean` and `sqrtn` leave out ids with weights of 0 and less. Without
    weights every w is 1. Gradients flow to the weights, too.

    Integer ids are int32 or int64. Strings are hashed by `tf.strings.to_hash_bucket_fast`, which
    gives the same row in every process, on every machine and in the exported model.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        combiner: str | None = None,
        embeddings_initializer: Any = "uniform",
        padding: Padding = None,
        out_of_range: str = "error",
        **kwargs: Any,
    ):
        """Makes the layer.

        Args:
            input_dim: Number of ids.
            output_dim: Length of a row.
            combiner: None, `sum`, `mean` or `sqrtn`.
            embeddings_initializer: Keras initializer of the rows.
            padding: An id that stands for no id, such as 0, -1 or `""`; None when there is none.
            out_of_range: What to do with integer ids outside `[0, input_dim)`: `error` stops and
                names the id and the table; `default` looks up one more row, the table's last,
                shared by all such ids; `hash` gives each of them one of the rows by a hash that is
                the same everywhere.
            **kwargs: Of `keras.layers.Layer`.

        Raises:
            UserError: If an option is none of its choices.
        """
        super().__init__(**kwargs)
        for option, value, choices in (
            ("combiner", combiner, COMBINERS),
            ("out_of_range", out_of_range, OUT_OF_RANGE),
        ):
            if value not in choices:
                raise UserError(
                    f"layer {self.name!r}: {option}={value!r} is not one of "
                    f"{', '.join(map(str, choices))}"
                )
        self.autocast = False  # what a lower precision would take from weights, sums would add up
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.combiner = combiner
        self.padding = padding
        self.out_of_range = out_of_range
        self.supports_masking = True  # a combiner uses a mask up
        self.table = EmbeddingTable(
            input_dim + (out_of_range == "default"),
            output_dim,
            embeddings_initializer,
            dtype=self.variable_dtype,
            trainable=self.trainable,
            name="table",
        )

    def build(self, ids_shape: Any) -> None:
        """Makes the table, or has it taken over."""
        self.table.build()
        self.built = True

    def call(
        self,
        ids: tf.Tensor | tf.RaggedTensor,
        weights: tf.Tensor | tf.RaggedTensor | None = None,
        mask: tf.Tensor | None = None,
    ) -> tf.Tensor | tf.RaggedTensor:
        """Looks up and combines.

        Args:
            ids: Integers or strings, `[batch, (n)]` ragged or `[..., n]` dense.
            weights: One per id, in the form of the ids; needs a combiner.
            mask: Of dense ids, bool of their shape: False leaves an id out.

        Raises:
            UserError: If these do not fit together.
        """
        self._refuse_misfits(ids, weights, mask)
        if isinstance(ids, tf.RaggedTensor):
            outputs = self._of_ragged(ids, weights)
        else:
            outputs = self._of_dense(ids, weights, mask)
        return tf.cast(outputs, self.compute_dtype)

    def compute_mask(self, ids: Any, previous_mask: Any = None) -> Any:
        """Which of the rows that were not combined belong to real ids."""
        if self.combiner is not None or _is_ragged(ids):
            return None
        if self.padding is None:
            return previous_mask
        unpadded = keras.ops.not_equal(ids, self.padding)
        return unpadded if previous_mask is None else unpadded & previous_mask

    def compute_output_spec(
        self, ids: Any, weights: Any = None, mask: Any = None
    ) -> keras.KerasTensor:
        """Shape and dtype of what `call` returns."""
        self._refuse_misfits(ids, weights, mask)
        ragged = _is_ragged(ids) and self.combiner is None
        shape = ids.shape if self.combiner is None else ids.shape[:-1]
        return keras.KerasTensor((*shape, self.output_dim), self.compute_dtype, ragged=ragged)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal layer."""
        initializer = keras.initializers.serialize(self.table.embeddings_initializer)
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "embeddings_initializer": initializer,
            "padding": self.padding,
            "out_of_range": self.out_of_range,
        }

    def _of_ragged(
        self, ids: tf.RaggedTensor, weights: tf.RaggedTensor | None
    ) -> tf.Tensor | tf.RaggedTensor:
        if weights is not None:
            weights = self._of_equal_lengths(ids, weights)
        if self.padding is not None:
            real = ids.with_flat_values(tf.not_equal(ids.flat_values, self.padding))
            ids = tf.ragged.boolean_mask(ids, real)
            weights = weights if weights is None else tf.ragged.boolean_mask(weights, real)
        if self.combiner is None:
            return ids.with_flat_values(self.table(self._row_ids(ids.flat_values)))
        values = weights if weights is None else weights.flat_values
        return self._combined(ids.flat_values, ids.value_rowids(), ids.nrows(), values)

    def _of_dense(
        self, ids: tf.Tensor, weights: tf.Tensor | None, mask: tf.Tensor | None
    ) -> tf.Tensor:
        real = mask
        if self.padding is not None:
            unpadded = tf.not_equal(ids, self.padding)
            real = unpadded if mask is None else unpadded & mask
        if self.combiner is None and real is None:
            return self.table(self._row_ids(ids))
        shape = tf.shape(ids, tf.int64)
        size, flat = tf.reduce_prod(shape), tf.reshape(ids, [-1])
        kept = tf.range(size) if real is None else tf.where(tf.reshape(real, [-1]))[:, 0]
        if real is not None:
            flat = tf.gather(flat, kept)
        if self.combiner is None:
            rows = self.table(self._row_ids(flat))
            rows = tf.scatter_nd(kept[:, None], rows, tf.stack([size, self.output_dim]))
            return self._shaped(rows, shape, ids.shape)
        if weights is not None:
            weights = tf.gather(tf.reshape(weights, [-1]), kept)
        combined = self._combined(flat, kept // shape[-1], tf.reduce_prod(shape[:-1]), weights)
        return self._shaped(combined, shape[:-1], ids.shape[:-1])

    def _shaped(self, rows: tf.Tensor, dynamic: tf.Tensor, static: tf.TensorShape) -> tf.Tensor:
        shaped = tf.reshape(rows, tf.concat([dynamic, [self.output_dim]], 0))
        return tf.ensure_shape(shaped, [*static, self.output_dim])

    def _combined(
        self, ids: tf.Tensor, bags: tf.Tensor, count: tf.Tensor, weights: tf.Tensor | None
    ) -> tf.Tensor:
        """One row per bag, `[count, dim]`, of ids `[n]` with their bags' numbers `[n]`."""
        if weights is not None:
            weights = tf.cast(weights, self.variable_dtype)
            if self.combiner != "sum":
                kept = tf.where(weights > 0)[:, 0]
                ids, bags, weights = (tf.gather(each, kept) for each in (ids, bags, weights))
        rows = self.table(self._row_ids(ids))
        if weights is not None:
            rows *= weights[:, None]
        total = tf.math.unsorted_segment_sum(rows, bags, count)
        if self.combiner == "sum":
            return total
        if weights is None:
            weights = tf.ones_like(bags, total.dtype)
        if self.combiner == "mean":
            divisor = tf.math.unsorted_segment_sum(weights, bags, count)
        else:
            divisor = tf.sqrt(tf.math.unsorted_segment_sum(weights**2, bags, count))
        return tf.math.divide_no_nan(total, divisor[:, None])

    def _row_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Numbers of rows, int64, of the shape of the ids."""
        if ids.dtype == tf.string:
            return tf.strings.to_hash_bucket_fast(ids, self.input_dim)
        ids = tf.cast(ids, tf.int64)
        if self.out_of_range == "error":
            return ids
        inside = (ids >= 0) & (ids < self.input_dim)
        if self.out_of_range == "default":
            return tf.where(inside, ids, tf.constant(self.input_dim, tf.int64))
        return tf.where(inside, ids, _hashed(ids, self.input_dim))

    def _of_equal_lengths(self, ids: tf.RaggedTensor, weights: tf.RaggedTensor) -> tf.RaggedTensor:
        """The weights, unless a record has more or fewer of them than ids."""
        message = f"layer {self.path!r}: a record {WEIGHTS_MISSING}"
        splits = tf.cast(weights.row_splits, ids.row_splits.dtype)
        same = fail_unless(tf.reduce_all(ids.row_splits == splits), lambda: tf.constant(message))
        return ids.with_flat_values(weights.flat_values + tf.cast(same, weights.dtype))

    def _refuse_misfits(self, ids: Any, weights: Any, mask: Any) -> None:
        dtype, reason = keras.backend.standardize_dtype(ids.dtype), ""
        if dtype not in ("int32", "int64", "string"):
            reason = (
                f"ids are int32, int64 or strings, not {dtype} (which a Sequential model makes of "
                "them unless it begins with a keras.Input of their dtype)"
            )
        elif _is_ragged(ids) and len(ids.shape) != 2:
            reason = f"ragged ids have the shape [batch, (n)], not {tuple(ids.shape)}"
        elif self.combiner is not None and len(ids.shape) < 2:
            reason = f"a combiner needs ids [batch, n], not {tuple(ids.shape)}; leave it out"
        elif self.padding is not None and isinstance(self.padding, str) != (dtype == "string"):
            reason = f"padding={self.padding!r} cannot stand among ids of dtype {dtype}"
        elif weights is not None and self.combiner is None:
            reason = f"weights need a combiner: {', '.join(map(str, COMBINERS[1:]))}"
        elif weights is not None and _is_ragged(weights) != _is_ragged(ids):
            reason = "ids and weights must both be ragged, or both dense"
        elif mask is not None and _is_ragged(ids):
            reason = "ragged ids take no mask; leave ids out beforehand, or name a padding id"
        if reason:
            raise UserError(f"layer {(self.path or self.name)!r}: {reason}")


def _is_ragged(tensor: Any) -> bool:
    return isinstance(tensor, tf.RaggedTensor) or bool(getattr(tensor, "ragged", False))


def _hashed(ids: tf.Tensor, rows: int) -> tf.Tensor:
    """Rows `[0, rows)`, equally many ids for each."""
    mixed = splitmix64.mix(tf.bitcast(ids, tf.uint64))
    return tf.bitcast(mixed % tf.constant(rows, tf.uint64), tf.int64)
