"""Writes a dataset of what Keras's `fit` takes: arrays, data frames, and streams of batches."""

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from tfps import arguments
from tfps.data import array_columns
from tfps.data.array_columns import Columns
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_order import describe, scratch_for, whole_shuffle
from tfps.data.schema import Schema, notes
from tfps.data.tfrecord import frame
from tfps.data.value_counts import CountsSum
from tfps.errors import UserError

_BLOCK = 4096  # records that are serialized at once
_SPLIT_OF_STREAM = (
    "write_dataset(): validation_split= goes with arrays and data frames, as in fit: of batches "
    "that are still to come the last share is not known; write the data for evaluation by a call "
    "of its own"
)
_log = logging.getLogger(__name__)


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
            first records show. A single array that nothing names is `x`.
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
    is_stream, batches = array_columns.batches_of(x, y, sample_weight)
    if is_stream and validation_split:
        raise UserError(_SPLIT_OF_STREAM)
    columns = _columns(batches, features, given)
    first = next(columns, None)
    if first is None:
        raise UserError("write_dataset(): there is no record")
    schema = array_columns.schema_of(first, features, given)
    first, last = array_columns.split(first, validation_split)
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
        found = array_columns.columns_of(batch, features, label, before)
        if records := array_columns.length(found):
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
    records = array_columns.length(columns)
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
