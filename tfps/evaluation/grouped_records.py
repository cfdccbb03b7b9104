"""The records of all groups in bounded memory: up to a number, and then in a file."""

import hashlib
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from tfps.errors import UserError

HELD_RECORDS = 1 << 22  # at most in memory; they take 20 bytes each, 28 if ids are text
_PARTITIONS = 256  # of the file; no group is in two of them
_BITS = 8  # of the partition's number
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: neighbouring ids go anywhere
_DIGEST_BYTES = 16


class Records(NamedTuple):
    """Records of whole groups."""

    labels: np.ndarray  # `[n]` float64
    scores: np.ndarray  # `[n]`
    groups: np.ndarray  # numbers of their groups, from 0 without gaps, `[n]` int64


class GroupedRecords:
    """Collects records, and returns them by whole groups, one part after the other.

    Records beyond the limit go to a file without a name, which the system deletes with the process,
    however that ends. Text ids are known by 128 bits of their BLAKE2b.
    """

    def __init__(self, held_records: int = HELD_RECORDS):
        self._held_records = held_records
        self._parts: list[np.ndarray] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._dtype: np.dtype | None = None  # of the records in it
        # Where each partition's records begin in the file, and how many they are, in each block.
        self._blocks: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> None:
        """Adds labels and scores `[n]`, and ids of groups `[n]`, integers or bytes objects."""
        for first in range(0, len(labels), self._held_records):
            some = slice(first, first + self._held_records)
            self._parts.append(_packed(labels[some], scores[some], groups[some]))
            self._held += len(self._parts[-1])
            if self._held > self._held_records:
                self._spill()

    def parts(self) -> Iterator[Records]:
        """All records, those of a group together; called once."""
        if self._file is None:
            if self._held:
                yield _unpacked(np.concatenate(self._parts))
            return
        if self._held:
            self._spill()
        for partition in range(_PARTITIONS):
            if len(found := self._read(self._file, partition)):
                yield _unpacked(found)
        self._file.close()

    def _spill(self) -> None:
        """Writes the held records, sorted by partition."""
        records = np.concatenate(self._parts)
        self._parts, self._held = [], 0
        mixed = records["group"].view(np.uint64).reshape(len(records), -1)[:, 0] * _MIXER
        partition = (mixed >> np.uint64(64 - _BITS)).astype(np.uint8)
        records = records[np.argsort(partition, kind="stable")]
        counts = np.bincount(partition, minlength=_PARTITIONS)
        try:
            self._file = self._file or self._new_file()
            begin = self._file.tell()
            records.tofile(self._file)
        except OSError as error:
            raise UserError(
                f"records beyond {self._held_records:,} are kept in a file in "
                f"{tempfile.gettempdir()}, which cannot be written: {error}; name a directory on "
                "another disk in the variable TMPDIR"
            ) from None
        self._dtype = records.dtype
        firsts = begin + (np.cumsum(counts) - counts) * records.dtype.itemsize
        self._blocks.append((firsts, counts))
        self._file.seek(0, 2)

    def _new_file(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with what it belongs to)
        weakref.finalize(self, file.close)  # also of an evaluation that is given up
        return file

    def _read(self, file: IO[bytes], partition: int) -> np.ndarray:
        found = []
        for firsts, counts in self._blocks:
            file.seek(int(firsts[partition]))
            found.append(np.fromfile(file, self._dtype, int(counts[partition])))
        return np.concatenate(found)


def _packed(labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Records as rows of a structured array."""
    ids = groups.astype(np.int64) if groups.dtype.kind in "iub" else _digests(groups)
    shape = ids.shape[1:]
    dtype = [("group", np.int64, shape), ("score", scores.dtype), ("label", np.float64)]
    packed = np.empty(len(labels), np.dtype(dtype))
    packed["group"], packed["score"], packed["label"] = ids, scores, labels
    return packed


def _unpacked(packed: np.ndarray) -> Records:
    ids = packed["group"].reshape(len(packed), -1)
    order = np.lexsort(ids.T)
    begins = np.ones(len(order), bool)
    begins[1:] = (ids[order][1:] != ids[order][:-1]).any(1)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(begins) - 1
    return Records(packed["label"], packed["score"], groups)


def _digests(groups: np.ndarray) -> np.ndarray:
    """Numbers of text ids, `[n, 2]`."""
    ids = [each if isinstance(each, bytes) else str(each).encode() for each in groups.tolist()]
    digests = {
        each: hashlib.blake2b(each, digest_size=_DIGEST_BYTES).digest()
        for each in dict.fromkeys(ids)
    }
    return np.frombuffer(b"".join(digests[each] for each in ids), np.int64).reshape(-1, 2)
