"""Writes a dataset of what Keras's `fit` takes: arrays, data frames, and streams of batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data import examples
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema
from tfps.errors import UserError

_BLOCK = 4096  # records that are serialized at once
# By the kind of a NumPy dtype.
_DTYPES = {"b": "int64", "i": "int64", "u": "int64", "f": "float32", "O": "string"}


class _Column(NamedTuple):
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


_Columns = tuple[dict[str, _Column], dict[str, _Column]]  # of features and of labels, by name


def write_dataset(
    directory: str,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    features: Sequence[Feature] | None = None,
    label: Feature | Sequence[Feature] | None = None,
    shards: int = 1,
    name: str = "data",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of what Keras's `fit` takes, for `--train_data` and `--eval_data`.

    Record number k goes to shard k modulo the number of shards, so that records which lie side by
    side, say of one user, are spread. Integers of any size and bool become int64, floats of any
    size float32, text and bytes strings; a column of lists is a feature of shape `(None,)`.

    Args:
        directory: Of the dataset, local or `gs://`.
        x: An array, or a dict or data frame of them by feature name. Or a `tf.data.Dataset`, a
            generator or a function that returns one, a `keras.utils.PyDataset`: batches `(x, y)`
            or `(x, y, sample_weight)`.
        y: The label, or a dict of several by name; None where batches bring them, or for none.
        sample_weight: A number per record, which is written as a label of this name.
        features: What the columns are, for vocabularies, dtypes and names; by default what the
            first records show. A single array that nothing names is `x`.
        label: The same of the labels. A single one that nothing names is `label`.
        shards: Number of files.
        name: Prefix of their names.
        overwrite: Replaces a dataset that is in the directory.

    Returns:
        The dataset's manifest.

    Raises:
        UserError: If columns differ in length, hold what no record can, or not what `features` and
            `label` say; names the column and the record.
    """
    given = (label,) if isinstance(label, Feature) else label
    batches = _batches(x, y, sample_weight)
    try:
        columns = _columns(next(batches), features, given)
    except StopIteration:
        raise UserError("write_dataset(): there is no batch, and so no record") from None
    schema = _schema(columns, features, given)
    count = 0
    with DatasetWriter.open(directory, name, shards, schema, overwrite) as writer:
        encoder = RecordEncoder(schema.all)
        while True:
            for record in _records(columns, schema, encoder, count):
                writer.write(count % shards, record)
                count += 1
            batch = next(batches, None)
            if batch is None:
                break
            columns = _columns(batch, features, given)
        if not count:
            raise UserError("write_dataset(): the columns hold no record")
        return writer.finish()


def _batches(x: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Batches of features, labels and weights; arrays are a single one."""
    if callable(x) and not hasattr(x, "shape"):
        x = x()
    is_indexed = hasattr(x, "__getitem__") and hasattr(x, "num_batches")  # a `PyDataset`
    if not (isinstance(x, (tf.data.Dataset, Iterator)) or is_indexed):
        yield x, y, sample_weight
        return
    if y is not None or sample_weight is not None:
        raise UserError("write_dataset(): y= and sample_weight= go with arrays; batches bring both")
    for batch in (x[k] for k in range(x.num_batches)) if is_indexed else x:
        several = batch if isinstance(batch, tuple) else (batch,)
        if len(several) > 3:
            raise UserError(
                f"write_dataset(): a batch has {len(several)} parts; it may be x, (x, y) or (x, y, "
                "sample_weight)"
            )
        first, second, third = [*several, None, None][:3]
        yield first, second, third


def _columns(
    batch: tuple[Any, Any, Any], features: Sequence[Feature] | None, label: Sequence[Feature] | None
) -> _Columns:
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


def _named(values: Any, known: Sequence[Feature], alone: str) -> dict[str, _Column]:
    """Columns by name; a single array has the name of the only feature that is known."""
    if isinstance(values, Mapping) or hasattr(values, "columns"):  # as a data frame has
        return {str(name): _column(each, str(name)) for name, each in values.items()}
    name = known[0].name if len(known) == 1 else alone
    return {name: _column(values, name)}


def _column(values: Any, name: str) -> _Column:
    if isinstance(values, tf.RaggedTensor):
        return _Column([_array(row, name) for row in values.to_list()], is_ragged=True)
    try:
        array = np.asarray(values)
    except ValueError:  # lists that differ in length
        return _Column([_array(row, name) for row in values], is_ragged=True)
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], (list, np.ndarray)):
        return _Column([_array(row, name) for row in array], is_ragged=True)
    return _Column(_array(array, name))


def _array(values: Any, name: str) -> np.ndarray:
    """An array of numbers, or of bytes objects."""
    array = np.asarray(values)
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


def _schema(
    columns: _Columns, features: Sequence[Feature] | None, label: Sequence[Feature] | None
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


def _records(
    columns: _Columns, schema: Schema, encoder: RecordEncoder, before: int
) -> Iterator[bytes]:
    """The serialized records of some columns.

    Args:
        columns: The columns.
        schema: What a record holds.
        encoder: Of the schema.
        before: Number of records before them, for messages.
    """
    every = {**columns[0], **columns[1]}
    if every.keys() != {feature.name for feature in schema.all}:
        raise UserError(
            f"write_dataset(): from record {before} on the columns are {', '.join(every)}, before "
            f"they were {', '.join(feature.name for feature in schema.all)}"
        )
    total = len(next(iter(every.values())).values)
    for first in range(0, total, _BLOCK):
        some = slice(first, min(first + _BLOCK, total))
        try:
            values = {f.name: every[f.name].of_records(f, some) for f in schema.all}
            encoded = encoder.encode(values)
        except ValueError:
            encoded = [_one(every, schema, k, before) for k in range(some.start, some.stop)]
        yield from encoded


def _one(columns: Mapping[str, _Column], schema: Schema, number: int, before: int) -> bytes:
    """One record by itself, which tells what is wrong with it."""
    values = {name: np.asarray(column.values[number]) for name, column in columns.items()}
    try:
        return examples.encode(values, *schema)
    except UserError as error:
        raise UserError(f"write_dataset(): record {before + number}: {error}") from None
