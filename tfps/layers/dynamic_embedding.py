"""An embedding of any ids: raw numbers and strings, of which those get a row that are seen."""

from typing import Any, NoReturn

import keras
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError
from tfps.layers.bags import BagEmbedding, Padding, initializer_of
from tfps.layers.key_options import LEAST_RECENT, NO_ROW, TRAINED, ZEROS, KeyOptions

_ALL_KEYS = (1 << 63) - 1
KEY_DTYPES = ("int64", "string")
_STRING_HASHES = (1 << 63) - 1  # the most that TensorFlow's hash has buckets


@keras.saving.register_keras_serializable("tfps")
class KeyedTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` that is asked for any int64, and whose rows come as keys do.

    Keras's layers hold matrices, so that it can hold no rows itself: they lie on parameter servers.

    Attributes:
        key_dtype: Dtype of the keys, `int64` or `string`; of strings it is asked for hashes.
    """

    def __init__(
        self,
        output_dim: int,
        options: KeyOptions,
        key_dtype: str,
        row_dtype: str = "float32",
        **kwargs: Any,
    ):
        super().__init__(_ALL_KEYS, output_dim, **kwargs)
        self.options = options
        self.key_dtype, self.row_dtype = key_dtype, row_dtype

    def add_weight(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuses to make a matrix."""
        raise UserError(
            f"layer {self.path!r}: a table without a vocabulary has no matrix that Keras could "
            "hold; build the model in the build_model() of a task and train it with trainer.task "
            "or cloud.local, and load what is exported with tfps.load_model"
        )


@keras.saving.register_keras_serializable("tfps")
class DynamicEmbedding(BagEmbedding):
    """Looks up any int64 or string, without a vocabulary, and combines the rows of each bag.

    Its table lives on parameter servers. A key gets a row when it has occurred `admit_after` times
    in training; before, and in evaluation and in the exported model, it has what `unknown` says,
    and its gradients are dropped and counted. Rows may be lost again: of keys that do not occur any
    more, or to make room for others. The report says how many rows each table has, and what became
    of its keys.

    It is called with what `tfps.Embedding` is called with, and returns the same; features share a
    table by sharing the layer. Any int64 is a key, negative ones and the greatest too, and so is
    any string, also the empty one; a string is known by 63 bits of TensorFlow's FarmHash, by which
    two of n strings meet with a probability of n²/2^64.

    A row's initial values depend on the run's seed, the table's name and the key alone.

    Attributes:
        unknown_row: What all keys without a row have, `[output_dim]`, where `unknown="trained"`.
    """

    unknown_row: keras.Variable | None = None

    @arguments.checked
    def __init__(
        self,
        output_dim: int,
        max_rows: int,
        key_dtype: str = "int64",
        combiner: str | None = None,
        admit_after: int = 1,
        forget_after: int | None = None,
        forget_after_hours: float | None = None,
        evict_first: str = LEAST_RECENT,
        min_norm: float = 0.0,
        unknown: str = ZEROS,
        embeddings_initializer: Any = "uniform",
        padding: Padding = None,
        row_dtype: str = "float32",
        **kwargs: Any,
    ):
        """Makes the layer.

        Args:
            output_dim: Length of a row.
            max_rows: Rows that the table has at most, over all ps. Memory is taken as they come.
            key_dtype: `int64` (int32 ids are widened) or `string`.
            combiner: None, `sum`, `mean` or `sqrtn`.
            admit_after: A key gets a row when it has occurred so often in training, 1 to 100.
            forget_after: A key loses its row when it has not occurred in so many trained records;
                looked for whenever a checkpoint is due. None for never.
            forget_after_hours: The same in hours.
            evict_first: Which rows make room for new keys where there are `max_rows`:
                `least_recent`, `least_frequent`, or `none`, so that new keys have no row.
            min_norm: A row that was trained and whose Euclidean norm is below it is lost as one
                that is to be forgotten; 0 for none.
            unknown: What a key without a row has: `zeros`, the `mean` of the initializer, or one
                row for all of them that is `trained` by keys that have none yet. That one begins
                with zeros, and is a dense parameter of the model with its optimizer.
            embeddings_initializer: Zeros, Ones, Constant (a number), RandomUniform, RandomNormal or
                TruncatedNormal of Keras.
            padding: A key that stands for no id, such as 0, -1 or `""`; None when there is none.
            row_dtype: In which the ps hold the rows: `float32`, or `bfloat16`, which takes half the
                memory; then what an update makes of a row is rounded at random, so that small
                steps count on average. The optimizer's slots, and what a layer holds itself, are
                float32.
            **kwargs: Of `keras.layers.Layer`.

        Raises:
            UserError: If an option is none of its choices.
        """
        super().__init__(output_dim, combiner, padding, row_dtype, **kwargs)
        self._refuse_other("key_dtype", key_dtype, KEY_DTYPES)
        self.key_dtype = key_dtype
        self.options = KeyOptions(
            max_rows,
            admit_after,
            forget_after,
            forget_after_hours,
            evict_first,
            min_norm,
            unknown,
        )
        self.options.check(self.name)
        self.table = KeyedTable(
            output_dim,
            self.options,
            key_dtype,
            embeddings_initializer=initializer_of(
                embeddings_initializer, f"layer {self.name!r}: embeddings_initializer="
            ),
            dtype=self.variable_dtype,
            row_dtype=row_dtype,
            trainable=self.trainable,
            name="table",
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal layer."""
        return {**super().get_config(), **vars(self.options), "key_dtype": self.key_dtype}

    def build(self, ids_shape: Any) -> None:
        """Makes the row of unknown keys if there is one, and has the table taken over."""
        if self.options.unknown == TRAINED:
            shape = (self.output_dim,)
            self.unknown_row = self.add_weight(shape, "zeros", name="unknown_row")
        super().build(ids_shape)

    def with_unknown_row(self, rows: tf.Tensor) -> tf.Tensor:
        """What keys have whose rows the table says are these.

        Args:
            rows: Of any keys, `[..., output_dim]`.
        """
        if self.unknown_row is None:
            return rows
        is_unknown = tf.reduce_all(tf.equal(rows, NO_ROW), -1, keepdims=True)
        return tf.where(is_unknown, tf.cast(self.unknown_row, rows.dtype), rows)

    def _rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.with_unknown_row(super()._rows(ids))

    def _row_ids(self, ids: tf.Tensor) -> tf.Tensor:
        if ids.dtype == tf.string:
            return string_keys(ids)
        return tf.cast(ids, tf.int64)

    def _refuse_misfits(self, ids: Any, weights: Any, mask: Any) -> None:
        super()._refuse_misfits(ids, weights, mask)
        dtype = keras.backend.standardize_dtype(ids.dtype)
        if (dtype == "string") != (self.key_dtype == "string"):
            raise UserError(
                f"layer {(self.path or self.name)!r}: it was made with key_dtype="
                f"{self.key_dtype!r}, but is called with {dtype}"
            )


def string_keys(strings: tf.Tensor) -> tf.Tensor:
    """What a table without a vocabulary knows strings by, int64 of their shape."""
    return tf.strings.to_hash_bucket_fast(strings, _STRING_HASHES)
