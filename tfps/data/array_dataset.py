"""Writes a dataset of what Keras's `fit` takes: arrays, data frames, and streams of batches."""

import collections
import contextlib
import functools
import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import tensorflow as tf

from tfps import arguments
from tfps.data.column import Column
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.example_encoder import RecordEncoder
from tfps.data.examples import CountsSum
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_order import describe, scratch_for, whole_shuffle
from tfps.data.schema import Schema, notes
from tfps.data.tfrecord import frame
from tfps.errors import UserError

Columns = tuple[dict[str, Column], dict[str, Column]]  # of features and of labels, by name
_BLOCK = 4096  # records that are serialized at once
_log = logging.getLogger(__name__)


def _batches_of(x: Any, y: Any, sample_weight: Any) -> tuple[bool, Iterator[tuple[Any, Any, Any]]]:
    """Whether batches come one by one, and their features, labels and weights."""
    # Arrays are a single batch.
    if callable(x) and not hasattr(x, "shape"):
        x = x()
    is_indexed = hasattr(x, "__getitem__") and hasattr(x, "num_batches")  # a `PyDataset`
    if not (isinstance(x, (tf.data.Dataset, Iterator)) or is_indexed):
        return False, iter([(x, y, sample_weight)])
    if y is not None or sample_weight is not None:
        raise UserError("write_dataset(): y= and sample_weight= go with arrays; batches bring both")
    is_endless = isinstance(x, tf.data.Dataset) and x.cardinality() == tf.data.INFINITE_CARDINALITY
    if is_endless or (is_indexed and x.num_batches is None):
        raise UserError(
            "write_dataset(): the batches never end; leave repeat() out, or take some with take(n)"
        )
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


def _columns_of(
    batch: tuple[Any, Any, Any],
    features: Sequence[Feature] | None,
    label: Sequence[Feature] | None,
    before: int = 0,
) -> Columns:
    """The columns of features and of labels, by name."""
    x, y, weight = batch
    of_x = list(_named(x, features or (), "x"))
    of_y = list(_named(y, label or (), "label")) if y is not None else []
    of_weight = [("sample_weight", weight)] if weight is not None else []
    _check_names([name for name, _ in of_x], [name for name, _ in (*of_y, *of_weight)])
    found = tuple(
        {name: Column.of(values, name, before) for name, values in some}
        for some in (of_x, [*of_y, *of_weight])
    )
    lengths = {name: column.records for some in found for name, column in some.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise UserError(f"write_dataset(): columns differ in their number of records: {counted}")
    return found[0], found[1]


def _named(values: Any, known: Sequence[Feature], alone: str) -> Iterator[tuple[str, Any]]:
    """Columns with their names; a single array has that of the only known feature or its own."""
    if hasattr(values, "column_names"):  # as an Arrow table has
        yield from zip(values.column_names, values.columns, strict=True)
    elif isinstance(values, Mapping) or hasattr(values, "columns"):  # as a data frame has
        by_name = values if hasattr(values, "items") else _by_name(values)
        yield from ((_name(name), each) for name, each in by_name.items())
    elif isinstance(values, tuple) and any(getattr(each, "ndim", 0) for each in values):
        raise UserError(
            f"write_dataset(): a tuple of {len(values)} arrays has no names for them; give a dict "
            "of arrays by name"
        )
    else:
        # A Series has a name. Other arrays with one, such as h5py's, have a path.
        own = getattr(values, "name", None) if hasattr(values, "to_numpy") else None
        named = _name(own) if own not in (None, "") else alone
        yield (known[0].name if len(known) == 1 else named), values


def _by_name(frame: Any) -> Mapping[str, Any]:
    """The columns of a frame of polars; Spark's and lazy ones hold none yet."""
    if hasattr(frame, "to_dict"):
        return dict(frame.to_dict())
    raise UserError(
        f"write_dataset(): the values of a {type(frame).__name__} are not in memory; give those of "
        "its toPandas() or collect(), some at a time by a generator"
    )


def _name(name: Any) -> str:
    """A column's name: text, or the number that a data frame gives to one without a name."""
    if isinstance(name, (str, int)) and name != "" and not isinstance(name, bool):
        return str(name)
    raise UserError(
        f"write_dataset(): a column has the name {name!r}, which is no text; rename it, the levels "
        'of a MultiIndex for example with frame.columns = ["_".join(each) for each in '
        "frame.columns]"
    )


def _check_names(features: Sequence[str], labels: Sequence[str]) -> None:
    """Refuses no column, and two of one name: a record would hold one of them."""
    if not features:
        raise UserError("write_dataset(): x holds no column")
    for name, count in collections.Counter([*features, *labels]).items():
        if count == 1:
            continue
        if name not in labels:
            text = f"x has two columns of the name {name!r}; rename one"
        elif name not in features:
            text = f"two labels, or a label and the weight, have the name {name!r}; rename one"
        else:
            text = (
                f"x has a column {name!r}, and the label or weight has that name too; rename the "
                "column, leave it out, or name a single label with label=tfps.Feature(...)"
            )
        raise UserError(f"write_dataset(): {text}: a record holds one value of a name")


def _schema_of(
    columns: Columns, features: Sequence[Feature] | None, label: Sequence[Feature] | None
) -> Schema:
    """What a record holds: what is said of the columns, else what they show."""
    found = []
    for some, known in zip(columns, (features, label), strict=True):
        by_name = {feature.name: feature for feature in known or ()}
        if len(by_name) != len(known or ()):
            raise UserError("write_dataset(): features= or label= describes a column twice")
        if missing := by_name.keys() - some.keys():
            raise UserError(
                f"write_dataset(): there is no column {min(missing)!r}; the columns are "
                f"{', '.join(some)}"
            )
        found.append(tuple(by_name.get(n) or column.feature() for n, column in some.items()))
    return Schema(*found)


def _split(columns: Columns, share: float) -> tuple[Columns, Columns | None]:
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
    return _part(columns, 0, kept), _part(columns, kept, total)


def _part(columns: Columns, first: int, end: int) -> Columns:
    features, labels = (
        {name: column.part(first, end) for name, column in each.items()} for each in columns
    )
    return features, labels


def _length(columns: Columns) -> int:
    return next(iter(columns[0].values())).records


_SPLIT_OF_STREAM = (
    "write_dataset(): validation_split= goes with arrays and data frames, as in fit: of batches "
    "that are still to come the last share is not known; write the data for evaluation by a call "
    "of its own"
)


@arguments.checked
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
    validation_split: float = 0.0,
    validation_directory: str | None = None,
    shuffle: Literal["none", "whole"] = "none",
    seed: int = 0,
) -> Manifest:
    """Writes a dataset of what Keras's `fit` takes, for `--data.train` and `--data.eval`.

    Record number k goes to shard k modulo the number of shards, so that records which lie side by
    side, say of one user, are spread. Integers and bool become int64, floats float32, text and
    bytes strings; a column of lists is a feature of shape `(None,)`. Fractions are rounded to
    float32; what else would be changed is refused.

    Args:
        directory: Of the dataset, local or `gs://`.
        x: An array, or a dict or data frame of them by feature name. Or a `tf.data.Dataset`, a
            generator or a function that returns one, a `keras.utils.PyDataset`: batches `(x, y)`
            or `(x, y, sample_weight)`.
        y: The label, or a dict of several by name; None where batches bring them, or for none.
        sample_weight: A number per record, which is written as a label of this name.
        features: What the columns are, for vocabularies, dtypes and names; by default what the
            first records show. A Series has its own name, another single array is `x`.
        label: The same of the labels. A single one that nothing names is `label`.
        shards: Number of files.
        name: Prefix of their names.
        overwrite: Replaces a dataset that is in the directory.
        validation_split: Share of arrays that is left for evaluation: as with `fit` the last
            records, as they come, before any shuffle.
        validation_directory: Of the dataset of these.
        shuffle: "whole" writes the records in an order that is drawn over all of them. What does
            not fit the memory goes to a temporary file, as large as the dataset, in its directory
            or, for `gs://`, where `TMPDIR` says.
        seed: Of that order.

    Returns:
        The dataset's manifest; that of the training data, where some are left for evaluation.

    Raises:
        UserError: If columns differ in length, have one name, hold what no record can without a
            change, or not what `features` and `label` say; names the column and the record.
    """
    _check_choices(validation_split, directory, validation_directory)
    if seed < 0:
        raise UserError(f"write_dataset(): seed={seed} must be 0 or more")
    given = (label,) if isinstance(label, Feature) else label
    is_stream, batches = _batches_of(x, y, sample_weight)
    if is_stream and validation_split:
        raise UserError(_SPLIT_OF_STREAM)
    columns = _columns(batches, features, given)
    first = next(columns, None)
    if first is None:
        raise UserError("write_dataset(): there is no record")
    schema = _schema_of(first, features, given)
    first, last = _split(first, validation_split)
    open_writer = functools.partial(
        DatasetWriter.open, name=name, shards=shards, schema=schema, overwrite=overwrite
    )
    counts, counts_of_last = CountsSum(), CountsSum()
    records = _framed(itertools.chain([first], columns), schema, counts)
    if shuffle == "whole":
        records = whole_shuffle(records, seed, scratch_for(directory))
    with contextlib.ExitStack() as writers:
        writer = writers.enter_context(open_writer(directory))
        if last and validation_directory:
            evaluation = writers.enter_context(open_writer(validation_directory))
        writer.write_all_in_turn(records)
        if last:
            evaluation.write_all_in_turn(_framed([last], schema, counts_of_last))
            _say(evaluation.finish(counts=counts_of_last.total), schema)
        written = writer.finish(counts=counts.total)
    _say(written, schema)
    if text := describe(written, 'shuffle="whole"'):
        _log.warning("write_dataset(): %s: %s", directory, text)
    return written


def _say(written: Manifest, schema: Schema) -> None:
    """Warns of numbers that are none, and of columns without a value; some empty lists are fine."""
    held = written.counts
    odd = [
        each
        for each in schema.all
        if held[each.name].not_finite or held[each.name].empty == written.records
    ]
    for note in notes(held, written.records, odd):
        _log.warning("write_dataset(): %s: %s", written.directory, note)


def _check_choices(
    validation_split: float, directory: str, validation_directory: str | None
) -> None:
    """Refuses what cannot be meant."""
    if not 0 <= validation_split < 1:
        raise UserError(
            f"write_dataset(): validation_split={validation_split} is no share: 0 or more, and "
            "less than 1"
        )
    if bool(validation_split) != bool(validation_directory):
        raise UserError(
            "write_dataset(): validation_split= and validation_directory= go together: the share "
            "of the records that is left for evaluation, and where to write it"
        )
    if validation_directory == directory:
        raise UserError(
            f"write_dataset(): {directory} is to hold the training data; name another "
            "validation_directory="
        )


def _columns(
    batches: Iterable[tuple[Any, Any, Any]],
    features: Sequence[Feature] | None,
    label: Sequence[Feature] | None,
) -> Iterator[Columns]:
    """The columns of each batch that holds records."""
    before = 0
    for batch in batches:
        found = _columns_of(batch, features, label, before)
        if records := _length(found):
            yield found
        before += records


def _framed(several: Iterable[Columns], schema: Schema, counts: CountsSum) -> Iterator[bytes]:
    """The records of all columns as they stand in a file; adds what they lack to `counts`."""
    encoder = RecordEncoder(schema.all)
    for columns in several:
        yield from map(frame, _records(columns, schema, encoder, counts))


def _records(
    columns: Columns, schema: Schema, encoder: RecordEncoder, counts: CountsSum
) -> Iterator[bytes]:
    """The serialized records of some columns."""
    every = {**columns[0], **columns[1]}
    records = _length(columns)
    if every.keys() != {feature.name for feature in schema.all}:
        before = next(iter(every.values())).before
        raise UserError(
            f"write_dataset(): from record {before} on the columns are {', '.join(every)}, before "
            f"they were {', '.join(feature.name for feature in schema.all)}"
        )
    for first in range(0, records, _BLOCK):
        end = min(first + _BLOCK, records)
        encoded = encoder.encode(
            {f.name: every[f.name].part(first, end).encodable(f) for f in schema.all}
        )
        counts.add(encoder.counts)
        yield from encoded
