"""An embedding of any ids, raw numbers or strings; the ones that occur get a row."""

import dataclasses
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError
from tfps.layers.bags import BagEmbedding, Padding

LEAST_RECENT, LEAST_FREQUENT, NONE = "least_recent", "least_frequent", "none"
EVICT_FIRST = (LEAST_RECENT, LEAST_FREQUENT, NONE)
ZEROS, MEAN, TRAINED = "zeros", "mean", "trained"
UNKNOWN = (ZEROS, MEAN, TRAINED)
# Each value of the row that a ps gives a key without one, where the layer trains one for all of
# them. No update leaves it in a row: from a number, none gets there without making NaN of others.
NO_ROW = float("-inf")
# Occurrences are counted in a byte.
MOST_OCCURRENCES = 100
_ALL_KEYS = (1 << 63) - 1
KEY_DTYPES = ("int64", "string")
_STRING_HASHES = (1 << 63) - 1  # the most that TensorFlow's hash has buckets


@dataclasses.dataclass(frozen=True)
class KeyOptions:
    """Which keys have a row, and for how long: options of `tfps.DynamicEmbedding`."""

    max_rows: int  # over all ps; each has an equal share
    admit_after: int = 1
    forget_after: int | None = None
    forget_after_hours: float | None = None
    evict_first: str = LEAST_RECENT
    min_norm: float = 0.0
    unknown: str = ZEROS

    @property
    def counts(self) -> bool:
        """Whether it counts occurrences of keys without a row."""
        return self.admit_after > 1

    @property
    def forgets(self) -> bool:
        """Whether rows are searched for those that expire."""
        ages = self.forget_after, self.forget_after_hours
        return any(age is not None for age in ages) or self.min_norm > 0

    @property
    def loses_rows(self) -> bool:
        return self.evict_first != NONE or self.forgets

    def check(self, layer: str) -> None:
        if wrong := self._wrong_number() or self._wrong_choice():
            raise UserError(f"layer {layer!r}: {wrong}")

    def _wrong_number(self) -> str:
        if self.max_rows < 1:
            return f"max_rows={self.max_rows}: a table has at least one row"
        if not 1 <= self.admit_after <= MOST_OCCURRENCES:
            return f"admit_after={self.admit_after} does not lie between 1 and {MOST_OCCURRENCES}"
        if self.forget_after is not None and self.forget_after < 1:
            return f"forget_after={self.forget_after}: say after how many records, or None"
        if self.forget_after_hours is not None and self.forget_after_hours <= 0:
            return f"forget_after_hours={self.forget_after_hours}: say after how many, or None"
        return f"min_norm={self.min_norm} is below 0" if self.min_norm < 0 else ""

    def _wrong_choice(self) -> str:
        if self.evict_first not in EVICT_FIRST:
            return f"evict_first={self.evict_first!r} is not one of {', '.join(EVICT_FIRST)}"
        if self.unknown not in UNKNOWN:
            return f"unknown={self.unknown!r} is not one of {', '.join(UNKNOWN)}"
        if self.unknown == TRAINED and self.admit_after == 1 and self.evict_first != NONE:
            return (
                f"unknown={TRAINED!r}: with admit_after=1 each key has a row as soon as it is "
                "trained, so that no record would train that of unknown ones; say admit_after=2 or "
                "more"
            )
        return ""


@keras.saving.register_keras_serializable("tfps")
class KeyedTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` of any int64, whose rows come with the keys.

    Keras's layers hold matrices, so its rows are on parameter servers. With `key_dtype="string"` it
    gets hashes of strings.
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
    and its gradients are dropped and counted. Rows may be lost again: of keys that no longer occur,
    or to make room for others. The report has the number of rows of each table and the fate of its
    keys.

    Its inputs and outputs are those of `tfps.Embedding`; features share a table by sharing the
    layer. Any int64 is a key, negative ones and the greatest too, and any string, also the empty
    one; a string is known by 63 bits of TensorFlow's FarmHash, where two of n strings collide with
    a probability of n²/2^64.

    A row's initial values depend on the run's seed, the table's name and the key alone.
    """

    # of all keys without a row, `[output_dim]`, where unknown="trained"
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
            max_rows: Rows of the table at most, over all ps. Memory is taken as they come.
            key_dtype: `int64` (int32 ids are widened) or `string`.
            combiner: None, `sum`, `mean` or `sqrtn`.
            admit_after: A key gets a row when it has occurred so often in training, 1 to 100.
            forget_after: A key loses its row after this many trained records without it; checked
                whenever a checkpoint is due. None for never.
            forget_after_hours: The same in hours.
            evict_first: Rows that make room for new keys at `max_rows`: `least_recent`,
                `least_frequent`, or `none`, so that new keys have no row.
            min_norm: A trained row with a smaller Euclidean norm is lost like one to forget; 0 for
                none.
            unknown: Of a key without a row: `zeros`, the `mean` of the initializer, or one row for
                all of them, `trained` by keys that have none yet. That one begins with zeros,
                and is a dense parameter of the model with its optimizer.
            embeddings_initializer: Zeros, Ones, Constant (a number), RandomUniform, RandomNormal or
                TruncatedNormal of Keras.
            padding: A key that stands for no id, such as 0, -1 or `""`; None when there is none.
            row_dtype: Of the rows on the ps: `float32`, or `bfloat16` with half the memory; updated
                rows are then rounded at random, so that small steps count on average. The
                optimizer's slots, and rows that a layer holds itself, are float32.
            **kwargs: Of `keras.layers.Layer`.

        Raises:
            UserError: If an option is none of its choices.
        """
        super().__init__(output_dim, combiner, padding, row_dtype, **kwargs)
        self._refuse_other("key_dtype", key_dtype, KEY_DTYPES)
        self.key_dtype = key_dtype
        self.options = KeyOptions(
            max_rows, admit_after, forget_after, forget_after_hours, evict_first, min_norm, unknown
        )
        self.options.check(self.name)
        self.table = KeyedTable(
            output_dim,
            self.options,
            key_dtype,
            **self._table_options(embeddings_initializer),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **vars(self.options), "key_dtype": self.key_dtype}

    def build(self, ids_shape: Any) -> None:
        if self.options.unknown == TRAINED:
            shape = (self.output_dim,)
            self.unknown_row = self.add_weight(shape, "zeros", name="unknown_row")
        super().build(ids_shape)

    def with_unknown_row(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[..., output_dim]` of the table, with `unknown_row` for keys without one."""
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
    """The keys of strings in a table without a vocabulary, int64 of their shape."""
    return tf.strings.to_hash_bucket_fast(strings, _STRING_HASHES)
