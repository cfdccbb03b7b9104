"""Tells of records that are sorted, which training would feel.

Training shuffles some thousand neighbouring records of a shard, not the whole dataset. Where
records are sorted, say by user or by label, its batches are of few users or of one label, and the
model ends worse.

A sample of neighbouring records shows it, of a size that does not depend on the dataset's. Each
column is measured by the serial correlation of its values' ranks,

    r = 1 - mean((R[i + 1] - R[i])^2) / (2 var(R)),

von Neumann's ratio (Bartels, JASA 77, 1982): about 0 in a random order, whatever the values are and
however often each occurs; 1 where neighbours are equal, or next to each other in a sorted column.
For two values, and for runs of ids in no order, it is the share of neighbours that are equal beyond
chance. A shard that training shuffles as a whole is looked at in a drawn order, too, so that there
only its difference from other shards counts.
"""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import bad_records, examples
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema
from tfps.data.tfrecord import scan
from tfps.errors import UserError

SHUFFLED_RECORDS = 8192  # neighbours of a shard, by the default of `Data.shuffle_buffer`
# From here on half of a record's rank is told by its neighbour: where values come in runs, so many
# neighbours are worth half as many, or fewer, that are drawn at random.
ALIKE = 0.5
# In a random order r is off by about 1/sqrt(pairs): so many times that is no chance. So nothing is
# told of less than a hundred records.
_CERTAIN = 10.0
_ASCENDING = 0.95  # of the neighbours that differ
_SAMPLED_RECORDS = 8192
_SAMPLED_BYTES = 64 << 20
_STRETCHES = 256
_LARGEST_WIDTH = 64  # values of a record: ids and numbers, not an image
_SHOWN_COLUMNS = 4


class SortedColumn(NamedTuple):
    """A feature or label in which neighbouring records are alike.

    Attributes:
        name: Of the feature or label.
        is_label: Which of the two it is.
        correlation: The serial correlation of ranks, of the value where it is largest.
        is_rising: Whether it is a number, no id, that grows from record to record, as the time does
            in logs.
    """

    name: str
    is_label: bool
    correlation: float
    is_rising: bool


class _Stretch(NamedTuple):
    """Neighbouring records of a shard, the first of which the index knows."""

    shard: int
    first: int
    offset: int


class _Neighbours(NamedTuple):
    """Pairs of sampled records that follow each other: two arrays of their numbers, `[pairs]`."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]


def find_sorted(dataset: Manifest) -> list[SortedColumn]:
    """The columns in which neighbouring records are alike, labels first.

    Features of shape `(None,)` and of more than 64 values are not looked at, and of compressed
    shards only the beginning is.

    Args:
        dataset: Its shards are read, about 8,192 records or 64 MiB of them.

    Raises:
        UserError: If a shard cannot be read.
    """
    schema = Schema.of(dataset)
    judged = [each for each in (*schema.labels, *schema.features) if _is_judged(each)]
    try:
        sampled = _sample(dataset, judged)
    except tf.errors.OpError as error:
        raise UserError(f"{dataset.directory} cannot be read: {error.message}") from None
    records = [record for _, some in sampled for record in some]
    if not records or not judged:
        return []
    values, _ = examples.parse(tf.constant(records), judged)
    runs = _runs(dataset, sampled)
    as_stored = _neighbours([run for some in runs.values() for run in some])
    as_trained = _neighbours(_as_trained(dataset, runs))
    found = []
    for feature in judged:
        columns = values[feature.name].numpy().reshape(len(records), -1).T
        correlation, ranks = max(
            ((_correlation(ranks, as_trained), ranks) for ranks in map(_ranks, columns)),
            key=lambda each: each[0],
        )
        if correlation >= max(ALIKE, _CERTAIN / max(1, len(as_trained.left)) ** 0.5):
            is_label = feature in schema.labels
            is_rising = not is_label and _is_rising(feature, ranks, as_stored)
            found.append(SortedColumn(feature.name, is_label, correlation, is_rising))
    return found


def describe(columns: Sequence[SortedColumn], mend: str) -> str:
    """What to tell of sorted columns; empty where there are none.

    Args:
        columns: As `find_sorted` gave them.
        mend: What writes the records in a drawn order, such as `--shuffle=whole`.
    """
    if not columns:
        return ""
    told = ", ".join(
        f"{'label ' if column.is_label else ''}{column.name!r} by {column.correlation:.2f}"
        for column in columns[:_SHOWN_COLUMNS]
    )
    more = len(columns) - _SHOWN_COLUMNS
    text = (
        f"the records are sorted, or come in long runs: neighbours correlate in {told}"
        f"{f' and in {more} more' if more > 0 else ''} (by rank; about 0 in a random order, told "
        f"from {ALIKE} on). Training shuffles {SHUFFLED_RECORDS:,} neighbours of a shard at a "
        "time, so that batches are of few of these values, which most models end worse for. "
    )
    rising = next((column.name for column in columns if column.is_rising), None)
    if rising:
        return (
            f"{text}{rising!r} grows from record to record: if this is the order of time, and "
            f"training is to follow it, leave it; otherwise {mend} writes the records in a drawn "
            "order"
        )
    return f"{text}{mend} writes the records in a drawn order"


def _is_judged(feature: Feature) -> bool:
    return feature.size is not None and 0 < feature.size <= _LARGEST_WIDTH


def _sample(dataset: Manifest, features: Sequence[Feature]) -> list[tuple[_Stretch, list[bytes]]]:
    """Stretches of records that are spread evenly over the dataset; without bad records."""
    known = [
        _Stretch(index, entry * dataset.index.stride, offset)
        for index, shard in enumerate(dataset.shards)
        for entry, offset in enumerate(
            [0] if shard.compression else dataset.index.offsets[index].tolist()
        )
    ]
    count = min(len(known), _STRETCHES)
    chosen = [known[number * len(known) // count] for number in range(count)]
    if not chosen:
        return []
    record_bytes = dataset.bytes / max(1, dataset.records)
    most = min(_SAMPLED_RECORDS, int(_SAMPLED_BYTES / record_bytes)) // count
    length = min(dataset.index.stride, max(2, most))

    def read(stretch: _Stretch) -> list[bytes]:
        shard = dataset.shards[stretch.shard]
        stored = scan(
            dataset.path_of(shard),
            shard.compression,
            stretch.first,
            stretch.offset,
            read_bytes=int(length * record_bytes * 1.1),
        )
        return [
            each.data
            for each in itertools.islice(stored, length)
            if each.data is not None
            and not each.problem
            and not bad_records.find_problem(each.data, features)
        ]

    with ThreadPoolExecutor(max_workers=16) as pool:  # in a bucket each takes its time
        return list(zip(chosen, pool.map(read, chosen), strict=True))


def _runs(
    dataset: Manifest, sampled: Sequence[tuple[_Stretch, list[bytes]]]
) -> dict[int, list[npt.NDArray[np.int64]]]:
    """By shard, the numbers of the sampled records of each stretch."""
    runs: dict[int, list[npt.NDArray[np.int64]]] = {}
    begin = 0
    for stretch, records in sampled:
        runs.setdefault(stretch.shard, []).append(np.arange(begin, begin + len(records)))
        begin += len(records)
    return runs


def _as_trained(
    dataset: Manifest, runs: dict[int, list[npt.NDArray[np.int64]]]
) -> list[npt.NDArray[np.int64]]:
    """Runs of sampled records, those of shards that training shuffles whole in a drawn order."""
    draw = np.random.default_rng(0)
    found: list[npt.NDArray[np.int64]] = []
    for shard, some in runs.items():
        if dataset.shards[shard].records <= SHUFFLED_RECORDS:
            found.append(draw.permutation(np.concatenate(some)))
        else:
            found.extend(some)
    return found


def _neighbours(runs: Sequence[npt.NDArray[np.int64]]) -> _Neighbours:
    return _Neighbours(
        np.concatenate([run[:-1] for run in runs]), np.concatenate([run[1:] for run in runs])
    )


def _ranks(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """The rank of each value; equal ones have their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _correlation(ranks: npt.NDArray[np.float64], neighbours: _Neighbours) -> float:
    """The serial correlation; 0 for a constant column, whose order is none."""
    variance = ranks.var()
    if not variance or not len(neighbours.left):
        return 0.0
    steps = ranks[neighbours.right] - ranks[neighbours.left]
    return float(1 - (steps**2).mean() / (2 * variance))


def _is_rising(feature: Feature, ranks: npt.NDArray[np.float64], neighbours: _Neighbours) -> bool:
    if feature.dtype == "string" or feature.vocabulary_size:
        return False
    steps = ranks[neighbours.right] - ranks[neighbours.left]
    differing = steps[steps != 0]
    return bool(len(differing) and (differing > 0).mean() >= _ASCENDING)
