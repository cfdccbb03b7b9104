"""Looks up bags of ids in a table and combines the rows of each bag into one vector."""

import abc
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError, reason_of
from tfps.layers.id_check import WEIGHTS_MISSING, fail_unless

COMBINERS = (None, "sum", "mean", "sqrtn")
ROW_DTYPES = ("float32", "bfloat16")

Padding = int | str | None


class BagEmbedding(keras.layers.Layer, abc.ABC):
    """The common part of layers that look up bags of ids in a table.

    `combiner` is None for single rows; `padding` is an id that stands for none.
    """

    table: keras.layers.Embedding

    def __init__(
        self, output_dim: int, combiner: str | None, padding: Padding, row_dtype: str, **kwargs: Any
    ):
        try:
            super().__init__(**kwargs)
        except (TypeError, ValueError) as error:  # Keras, of what it does not know
            raise UserError(f"{type(self).__name__}(): {reason_of(error)}") from None
        self._refuse_less_than_one(output_dim=output_dim)
        self._refuse_other("combiner", combiner, COMBINERS)
        self._refuse_other("row_dtype", row_dtype, ROW_DTYPES)
        self.autocast = False  # what a lower precision would take from weights, sums would add up
        self.output_dim = output_dim
        self.combiner = combiner
        self.padding = padding
        self.row_dtype = row_dtype
        self.supports_masking = True  # a combiner uses a mask up

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(
                self.table.embeddings_initializer
            ),
            "padding": self.padding,
            "row_dtype": self.row_dtype,
        }

    def _rows(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of ids of any shape, `[*ids.shape, output_dim]`."""
        return self.table(self._row_ids(ids))

    @abc.abstractmethod
    def _row_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """The table's ids, int64, in the shape of the ids."""

    def _table_options(self, embeddings_initializer: Any) -> dict[str, Any]:
        return {
            "embeddings_initializer": initializer_of(
                embeddings_initializer, f"layer {self.name!r}: embeddings_initializer="
            ),
            "dtype": self.variable_dtype,
            "row_dtype": self.row_dtype,
            "trainable": self.trainable,
            "name": "table",
        }

    def _refuse_less_than_one(self, **sizes: int) -> None:
        for option, size in sizes.items():
            if size < 1:
                raise UserError(f"layer {self.name!r}: {option}={size} must be at least 1")

    def _refuse_other(self, option: str, value: Any, choices: Sequence[Any]) -> None:
        if value not in choices:
            raise UserError(
                f"layer {self.name!r}: {option}={value!r} is not one of "
                f"{', '.join(map(str, choices))}"
            )

    def build(self, ids_shape: Any) -> None:
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
        self._refuse_misfits(ids, weights, mask)
        ragged = _is_ragged(ids) and self.combiner is None
        shape = ids.shape if self.combiner is None else ids.shape[:-1]
        return keras.KerasTensor((*shape, self.output_dim), self.compute_dtype, ragged=ragged)

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
            return ids.with_flat_values(self._rows(ids.flat_values))
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
            return self._rows(ids)
        shape = tf.shape(ids, tf.int64)
        size, flat = tf.reduce_prod(shape), tf.reshape(ids, [-1])
        kept = tf.range(size) if real is None else tf.where(tf.reshape(real, [-1]))[:, 0]
        if real is not None:
            flat = tf.gather(flat, kept)
        if self.combiner is None:
            rows = self._rows(flat)
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
        rows = self._rows(ids)
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

    def _of_equal_lengths(self, ids: tf.RaggedTensor, weights: tf.RaggedTensor) -> tf.RaggedTensor:
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


def initializer_of(given: Any, where: str) -> Any:
    """An initializer of Keras's, from itself, a function, a name or a config."""
    try:
        found = keras.initializers.get(given)
    except Exception:  # Keras has several for what it does not know
        found = None
    if not callable(found):
        raise UserError(
            f"{where}{arguments.shown(given)} must be a keras.initializers.Initializer, or the "
            "name of one, such as 'uniform'"
        )
    return found


def _is_ragged(tensor: Any) -> bool:
    return isinstance(tensor, tf.RaggedTensor) or bool(getattr(tensor, "ragged", False))
