"""Reads one TFRecord file whole: how many records, where they begin, whether they are good."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import manifest, record_check
from tfps.feature import Feature
from tfps.record_index import STRIDE
from tfps.record_scan import StoredRecord, compression_of, scan
from tfps.shard import Shard


@dataclasses.dataclass(frozen=True)
class ShardScan:
    """What a file holds.

    Attributes:
        shard: The file as a manifest names it.
        offsets: Byte offsets of every `STRIDE`th record, int64; empty for a compressed file.
        damaged: Records that cannot be read or do not fit their checksums.
        first_damaged: The first of them, without its bytes.
        unfit: What is wrong with the first of the records that were held against the features,
            with its number; empty when they fit.
    """

    shard: Shard
    offsets: npt.NDArray[np.int64]
    damaged: int
    first_damaged: StoredRecord | None
    unfit: str

    @property
    def is_whole(self) -> bool:
        """Whether the file could be read to its end."""
        return self.first_damaged is None or self.first_damaged.data is not None


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
    damaged, first_damaged, unfit, records = 0, None, "", 0
    for record in scan(path, compression):
        if record.problem:
            damaged += 1
            first_damaged = first_damaged or record
        if record.data is None:
            first_damaged = record
            break
        if record.number % STRIDE == 0 and not compression:
            offsets.append(record.offset)
        if record.number < checked and not unfit and not record.problem:
            found = record_check.problem(record.data, features)
            unfit = f"record {record.number} (byte {record.offset}) {found}" if found else ""
        records += 1
    shard = Shard(
        path.rpartition("/")[2],
        records,
        tf.io.gfile.stat(path).length,
        manifest.checksum(path),
        compression,
    )
    return ShardScan(shard, np.array(offsets, np.int64), damaged, first_damaged, unfit)
