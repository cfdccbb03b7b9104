"""Columns of a table as inputs of a model: each is a feature, and the layers behind it.

    from tfps import columns

    COLUMNS = (
        columns.Number("price", mean=2.8, variance=1.7, log=True),
        columns.Category("city", vocabulary="vocabulary/city.txt"),
    )
    inputs = {each.name: each.input() for each in COLUMNS}
    hidden = keras.layers.Concatenate()([each(inputs[each.name]) for each in COLUMNS])

All that is done to a value is done in the model, so that training, `trainer.predict`, a server and
TensorFlow Serving take the same raw value. `trainer.analyze` writes such columns.
"""

import abc
import dataclasses
import os
import re

import keras

from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.layers.date_parts import DateParts
from tfps.layers.dynamic_embedding import DynamicEmbedding
from tfps.layers.embedding import Embedding
from tfps.storage import files

_MOST_DIM = 16


@dataclasses.dataclass(frozen=True)
class Column(abc.ABC):
    """A column of a table.

    Called with its input it gives float32 `[batch, n]`.

    Attributes:
        name: Of the column, of the feature, and of the model's input.
    """

    name: str

    @property
    @abc.abstractmethod
    def feature(self) -> Feature:
        """What a record holds."""

    def input(self) -> keras.KerasTensor:
        feature = self.feature
        return keras.Input(
            feature.shape, name=self.name, dtype=feature.dtype, ragged=feature.is_ragged
        )

    @abc.abstractmethod
    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor: ...

    def _layer_name(self, what: str) -> str:
        return re.sub(r"[^\w.-]", "_", f"{self.name}_{what}", flags=re.ASCII)


@dataclasses.dataclass(frozen=True)
class Number(Column):
    """A number, normalized; one that may be missing gives 0 and, beside it, whether it is there.

    Attributes:
        mean, variance: Of the values, with `log` of their logarithms.
        log: Whether `sign(x) log(1 + |x|)` is taken first.
        default: What stands for a missing value in a record: a number that no row has. None where
            every row has a number.
    """

    mean: float = 0.0
    variance: float = 1.0
    log: bool = False
    default: float | None = None

    @property
    def feature(self) -> Feature:
        return Feature(self.name, "float32", default=self.default)

    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor:
        ops = keras.ops
        column = ops.expand_dims(values, -1)
        scaled = ops.sign(column) * ops.log1p(ops.abs(column)) if self.log else column
        scaled = keras.layers.Normalization(
            None, self.mean, self.variance, name=self._layer_name("normalized")
        )(scaled)
        if self.default is None:
            return scaled
        is_known = ops.cast(ops.not_equal(column, self.default), "float32")
        return ops.concatenate([scaled * is_known, is_known], -1)


@dataclasses.dataclass(frozen=True)
class Category(Column):
    """One of some values that a file lists, or several of them in a cell; others share one row.

    Attributes:
        vocabulary: File with a value per line; local or `gs://`.
        dtype: `string` or `int64`.
        is_list: Whether a cell holds any number of values, divided by `|`.
        dim: Dimension of the embedding; by default it grows with the vocabulary, up to 16.
    """

    vocabulary: str | os.PathLike[str]
    dtype: str = "string"
    is_list: bool = False
    dim: int | None = None

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.dtype, (None,) if self.is_list else ())

    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor:
        kinds = {"string": keras.layers.StringLookup, "int64": keras.layers.IntegerLookup}
        lookup = kinds[self.dtype](
            vocabulary=_file(self.name, self.vocabulary), name=self._layer_name("lookup")
        )
        rows = lookup.vocabulary_size()
        return Embedding(
            rows,
            self.dim or _dim(rows),
            combiner="mean" if self.is_list else None,
            name=self._layer_name("embedding"),
        )(lookup(values))


@dataclasses.dataclass(frozen=True)
class Ids(Column):
    """Ids or texts of which there are too many to list: a `DynamicEmbedding`.

    Attributes:
        max_rows: How many may have a row.
        dtype: `string` or `int64`.
        dim: Dimension of the embedding.
    """

    max_rows: int
    dtype: str = "string"
    dim: int = _MOST_DIM

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.dtype)

    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor:
        return DynamicEmbedding(
            self.dim, self.max_rows, key_dtype=self.dtype, name=self._layer_name("embedding")
        )(values)


@dataclasses.dataclass(frozen=True)
class Date(Column):
    """A date, with a time or without: see `tfps.layers.date_parts.DateParts`."""

    first_day: int = 0
    last_day: int = 36_525

    @property
    def feature(self) -> Feature:
        return Feature(self.name, "string")

    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor:
        return DateParts(self.first_day, self.last_day, name=self._layer_name("parts"))(values)


@dataclasses.dataclass(frozen=True)
class Text(Column):
    """A text as the mean of its words' embeddings; words that no file lists share one row.

    Words are lower case (of ASCII letters) and without punctuation, as
    `keras.layers.TextVectorization` makes them.

    Attributes:
        vocabulary: File with a word per line; local or `gs://`.
        dim: Dimension of the embedding.
    """

    vocabulary: str | os.PathLike[str]
    dim: int = _MOST_DIM

    @property
    def feature(self) -> Feature:
        return Feature(self.name, "string")

    def __call__(self, values: keras.KerasTensor) -> keras.KerasTensor:
        words = keras.layers.TextVectorization(
            vocabulary=_file(self.name, self.vocabulary), name=self._layer_name("words")
        )
        return Embedding(
            words.vocabulary_size(),
            self.dim,
            combiner="mean",
            padding=0,
            name=self._layer_name("embedding"),
        )(words(values))


def _dim(rows: int) -> int:
    return min(_MOST_DIM, max(2, round(4 * rows**0.25)))


def _file(column: str, path: str | os.PathLike[str]) -> str:
    found = os.fspath(path)
    if not files.exists(found):
        raise UserError(
            f"column {column!r}: there is no vocabulary {found}; name a file with a value per "
            "line, such as trainer.analyze writes"
        )
    return found
