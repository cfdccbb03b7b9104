"""Finds the records of a shard that cannot be trained, after a worker has failed on them.

A worker's error names neither the record nor, often, the reason: TensorFlow reads and parses
records in batches. The chief reads the same records once more, one by one.
"""

import dataclasses
from collections.abc import Sequence

from tfps.data import record_check
from tfps.data.record_scan import scan
from tfps.feature import Feature


@dataclasses.dataclass(frozen=True)
class BadRecord:
    """A record that cannot be trained.

    Attributes:
        number: Of the record in its shard, from 0.
        offset: Byte at which it begins; of what is decompressed, when the shard is compressed.
        reason: What to say after its name.
    """

    number: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.number} (byte {self.offset}) {self.reason}"


def find(
    path: str,
    compression: str,
    features: Sequence[Feature],
    end: int,
    number: int = 0,
    offset: int = 0,
) -> list[BadRecord]:
    """Reads some records of a shard and holds them against their checksums and the features.

    Args:
        path: The shard.
        compression: "", "GZIP" or "ZLIB".
        features: Features and labels that every record must hold, ids within their vocabularies.
        end: Number of the record after the last.
        number: Of the first record to read.
        offset: Byte at which it begins.

    Returns:
        The bad records in order. Those behind one at which the file ends, or whose length is
        damaged, cannot be read.

    Raises:
        tf.errors.OpError: If the file cannot be read.
    """
    bad: list[BadRecord] = []
    for record in scan(path, compression, number, offset):
        if record.number >= end:
            return bad
        reason = record.problem or record_check.problem(record.data or b"", features)
        if reason:
            bad.append(BadRecord(record.number, record.offset, reason))
        if record.data is None:
            return bad
        number = record.number + 1
        offset = record.next_offset
    if number < end:
        bad.append(
            BadRecord(number, offset, f"is missing: the manifest says the file holds {end} or more")
        )
    return bad
