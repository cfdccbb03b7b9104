"""Reads one TFRecord file whole: how many records, where they begin, whether they are good."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import bad_records
from tfps.data.feature import Feature
from tfps.data.record_index import STRIDE
from tfps.data.shards import Shard
from tfps.data.tfrecord import StoredRecord, compression_of, scan
from tfps.storage import checksum
from trainer.console import file_progress
from trainer.datasets.processes import Processes, worthwhile

CHECKED_RECORDS = 64  # of each file, where no manifest says what they hold


@dataclasses.dataclass(frozen=True)
class ShardScan:
    """What a file holds.

    Attributes:
        shard: The file as a manifest names it.
        offsets: Byte offsets of every `STRIDE`th record, int64; empty for a compressed file.
        damaged: Records that cannot be read or do not fit their checksums, without their bytes.
        is_whole: Whether the file could be read to its end; else the last damaged record ends it.
        unfit: What is wrong with the first of the records that were held against the features,
            with its number; empty when they fit.
    """

    shard: Shard
    offsets: npt.NDArray[np.int64]
    damaged: tuple[StoredRecord, ...]
    is_whole: bool
    unfit: str


def scan_shard(path: str, features: Sequence[Feature], checked: int) -> ShardScan:
    """Reads a file from its beginning to its end.

    Args:
        path: A TFRecord file, compressed or not, local or `gs://`.
        features: What its records must hold.
        checked: How many of its first records to hold against the features.

    Raises:
        tf.errors.OpError: If the file cannot be read.
    """
    compression = compression_of(path)
    offsets: list[int] = []
    damaged: list[StoredRecord] = []
    unfit, records, is_whole = "", 0, True
    for record in scan(path, compression):
        if record.problem:
            damaged.append(StoredRecord(record.number, record.offset, None, record.problem))
        if record.data is None:
            is_whole = False
            break
        if record.number % STRIDE == 0 and not compression:
            offsets.append(record.offset)
        if record.number < checked and not unfit and not record.problem:
            found = bad_records.find_problem(record.data, features)
            unfit = f"record {record.number} (byte {record.offset}) {found}" if found else ""
        records += 1
    shard = Shard(
        path.rpartition("/")[2],
        records,
        tf.io.gfile.stat(path).length,
        checksum.of_file(path),
        compression,
    )
    return ShardScan(shard, np.array(offsets, np.int64), tuple(damaged), is_whole, unfit)


def scan_shards(
    paths: Sequence[str], processes: int, features: Sequence[Feature], checked: int
) -> Iterator[ShardScan]:
    """Reads files at the same time, and shows how far that is.

    Args:
        paths: TFRecord files.
        processes: How many read.
        features: See `scan_shard`.
        checked: See `scan_shard`.

    Yields:
        What each file holds, in the order of the files.

    Raises:
        tf.errors.OpError: If a file cannot be read.
    """
    work = functools.partial(scan_shard, features=tuple(features), checked=checked)
    sizes = [tf.io.gfile.stat(path).length for path in paths]
    records = 0
    with (
        Processes(min(worthwhile(processes, sum(sizes)), len(paths)), __name__) as pool,
        file_progress.shown(sum(sizes)) as progress,
    ):
        for size, found in zip(sizes, pool.map(work, paths), strict=True):
            records += found.shard.records
            progress.add(size, f"{records:,} records")
            yield found
