"""What Keras's `fit` takes, as columns of records: arrays, data frames, and streams of batches."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.data.schema import Schema
from tfps.errors import UserError

# By the kind of a NumPy dtype.
_DTYPES = {"b": "int64", "i": "int64", "u": "int64", "f": "float32", "O": "string"}


class Column(NamedTuple):
    """Values of some records.

    Attributes:
        values: `[records, *shape]`; of records that differ in length a list with one `[n]` each.
            Texts are bytes objects.
        is_ragged: Whether they do.
    """

    values: Any
    is_ragged: bool = False

    def feature(self, name: str) -> Feature:
        """The feature that holds them."""
        arrays = self.values if self.is_ragged else [self.values]
        kinds = {array.dtype.kind for array in arrays if array.size} or {"i"}
        shape = (None,) if self.is_ragged else self.values.shape[1:]
        return Feature(name, "float32" if "f" in kinds else _DTYPES[kinds.pop()], shape)

    def of_records(self, feature: Feature, some: slice) -> Any:
        """The values of some records as `RecordEncoder` takes them."""
        values = self.values[some]
        if feature.is_ragged:
            return [[row.tolist() for row in values]]
        rows = values if isinstance(values, np.ndarray) else np.stack(values)
        return rows.reshape(len(rows), -1).T


Columns = tuple[dict[str, Column], dict[str, Column]]  # of features and of labels, by name


def batches_of(x: Any, y: Any, sample_weight: Any) -> tuple[bool, Iterator[tuple[Any, Any, Any]]]:
    """Whether batches come one by one, and their features, labels and weights.

    Arrays are a single batch.
    """
    if callable(x) and not hasattr(x, "shape"):
        x = x()
    is_indexed = hasattr(x, "__getitem__") and hasattr(x, "num_batches")  # a `PyDataset`
    if not (isinstance(x, (tf.data.Dataset, Iterator)) or is_indexed):
        return False, iter([(x, y, sample_weight)])
    if y is not None or sample_weight is not None:
        raise UserError("write_dataset(): y= and sample_weight= go with arrays; batches bring both")
    return True, _parts(x[k] for k in range(x.num_batches)) if is_indexed else _parts(x)


def _parts(batches: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Features, labels and weights of each batch, None for what it lacks."""
    for batch in batches:
        several = batch if isinstance(batch, tuple) else (batch,)
        if len(several) > 3:
            raise UserError(
                f"write_dataset(): a batch has {len(several)} parts; it may be x, (x, y) or (x, y, "
                "sample_weight)"
            )
        first, second, third = [*several, None, None][:3]
        yield first, second, third


def columns_of(
    batch: tuple[Any, Any, Any], features: Sequence[Feature] | None, label: Sequence[Feature] | None
) -> Columns:
    """The columns of features and of labels, by name."""
    x, y, weight = batch
    of_labels = _named(y, label or (), "label") if y is not None else {}
    if weight is not None:
        of_labels["sample_weight"] = _column(weight, "sample_weight")
    found = _named(x, features or (), "x"), of_labels
    lengths = {name: len(column.values) for some in found for name, column in some.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise UserError(f"write_dataset(): columns differ in their number of records: {told}")
    return found


def _named(values: Any, known: Sequence[Feature], alone: str) -> dict[str, Column]:
    """Columns by name; a single array has the name of the only feature that is known."""
    if isinstance(values, Mapping) or hasattr(values, "columns"):  # as a data frame has
        return {str(name): _column(each, str(name)) for name, each in values.items()}
    name = known[0].name if len(known) == 1 else alone
    return {name: _column(values, name)}


def _column(values: Any, name: str) -> Column:
    if isinstance(values, tf.RaggedTensor):
        return Column([_array(row, name) for row in values.to_list()], is_ragged=True)
    try:
        array = _as_array(values)
    except ValueError:  # lists that differ in length
        return Column([_array(row, name) for row in values], is_ragged=True)
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], (list, np.ndarray)):
        return Column([_array(row, name) for row in array], is_ragged=True)
    return Column(_array(array, name))


def _array(values: Any, name: str) -> np.ndarray:
    """An array of numbers, or of bytes objects."""
    array = _as_array(values)
    if not array.size or array.dtype.kind in "biuf":
        return array.astype(np.uint8) if array.dtype.kind == "b" else array
    if array.dtype.kind not in "SUO":
        raise UserError(
            f"write_dataset(): column {name!r} has dtype {array.dtype}, which no record holds; "
            "make numbers, text or bytes of it"
        )
    encoded = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        if not isinstance(value, (str, bytes)):
            raise UserError(
                f"write_dataset(): column {name!r} has {value!r} at {list(place)}, which is "
                "neither a number nor text nor bytes"
            )
        encoded[place] = value.encode() if isinstance(value, str) else bytes(value)
    return encoded


def _as_array(values: Any) -> np.ndarray:
    """An array; bytes stay objects, since NumPy's own type for them drops zeros at their end."""
    first = values
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return np.asarray(values, object if isinstance(first, bytes) else None)


def schema_of(
    columns: Columns, features: Sequence[Feature] | None, label: Sequence[Feature] | None
) -> Schema:
    """What a record holds: what is said of the columns, else what they show."""
    found = []
    for some, known in zip(columns, (features, label), strict=True):
        by_name = {feature.name: feature for feature in known or ()}
        if missing := by_name.keys() - some.keys():
            raise UserError(
                f"write_dataset(): there is no column {min(missing)!r}; the columns are "
                f"{', '.join(some)}"
            )
        found.append(tuple(by_name.get(n) or column.feature(n) for n, column in some.items()))
    return Schema(*found)


def split(columns: Columns, share: float) -> tuple[Columns, Columns | None]:
    """The first records, and the last share of them, as Keras's `fit` parts them."""
    if not share:
        return columns, None
    total = _length(columns)
    kept = math.floor(total * (1 - share))
    if kept in (0, total):
        raise UserError(
            f"write_dataset(): validation_split={share} of {total} records leaves none for "
            f"{'training' if kept == 0 else 'evaluation'}"
        )
    return _part(columns, slice(kept)), _part(columns, slice(kept, total))


def _part(columns: Columns, some: slice) -> Columns:
    features, labels = (
        {name: column._replace(values=column.values[some]) for name, column in each.items()}
        for each in columns
    )
    return features, labels


def _length(columns: Columns) -> int:
    """Number of records."""
    return len(next(iter(columns[0].values())).values)
