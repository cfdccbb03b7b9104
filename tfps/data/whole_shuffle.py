"""Brings records into an order that is drawn over all of them, in bounded memory.

Every record draws a number of 64 bits, and the records are sorted by these: an external merge sort.
What the memory does not hold goes, in sorted runs, to a file without a name, which the operating
system deletes when it is closed, also when the process is killed. So the order depends on the seed
and on how many records there are, and not on the memory.
"""

import contextlib
import heapq
import io
import itertools
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np

from tfps import byte_size
from tfps.data.tfrecord import FOOTER_BYTES, HEADER_BYTES
from tfps.errors import UserError
from tfps.storage.paths import is_local

MEMORY_BYTES = 512 << 20  # of records that are held at once
_OVERHEAD_BYTES = 160  # what Python needs for a record and its number, beside its bytes
_LEAST_READ_BYTES = 64 << 10
_DRAWN_AT_ONCE = 4096
_ENTRY = struct.Struct("<QQ")  # a record's number; then the record, which begins with its length

_Run = tuple[int, int]  # where it begins and ends in the file


def whole_shuffle(
    records: Iterable[bytes], seed: int, scratch: str, memory_bytes: int = MEMORY_BYTES
) -> Iterator[bytes]:
    """Reads all records, then gives them back in a drawn order.

    Args:
        memory_bytes: Of records that are held at once. The sorted runs are read through buffers of
            that size together, but for runs of which more than one falls on 64 KiB.
    """
    runs: list[_Run] = []
    held: list[tuple[int, bytes]] = []
    size = 0
    with _temporary_file(scratch) as file:
        for entry in zip(_drawn_numbers(seed), records):  # noqa: B905 (the numbers have no end)
            held.append(entry)
            size += len(entry[1]) + _OVERHEAD_BYTES
            if size >= memory_bytes:
                held.sort()
                runs.append(_write_run(file, held, scratch))
                held, size = [], 0
        held.sort()
        read_bytes = max(_LEAST_READ_BYTES, memory_bytes // (len(runs) or 1))
        stored = [_read_run(file, run, read_bytes) for run in runs]
        for _, record in heapq.merge(*stored, held):
            yield record


def scratch_for(directory: str) -> str:
    """The local directory for what does not fit the memory."""
    return directory if is_local(directory) else tempfile.gettempdir()


def describe_room(directory: str, size: int) -> str:
    """What room a shuffle needs beside the shards, to be said before it begins.

    Args:
        size: Bytes of all records, or of what they are made of.

    Returns:
        A sentence; empty where the memory holds all records.
    """
    if size < MEMORY_BYTES:
        return ""
    return (
        f"the shuffle needs room in {scratch_for(directory)} for all records once more, beside the "
        f"shards, until it is done; the input has {byte_size.show(size)}"
    )


def _drawn_numbers(seed: int) -> Iterator[int]:
    """Numbers below 2^64, the same ones with every version of NumPy (its policy, NEP 19)."""
    generator = np.random.PCG64(seed)
    while True:
        yield from generator.random_raw(_DRAWN_AT_ONCE).tolist()


@contextlib.contextmanager
def _temporary_file(scratch: str) -> Iterator[IO[bytes]]:
    try:
        file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 (closed below)
    except OSError as error:
        raise _unusable(scratch, error) from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # of what a full disk did not take, and nobody wants now
            file.close()


def _write_run(file: IO[bytes], entries: list[tuple[int, bytes]], scratch: str) -> _Run:
    """Adds sorted entries to the file."""
    begin = file.tell()
    numbered = ((number.to_bytes(8, "little"), record) for number, record in entries)
    try:
        file.writelines(itertools.chain.from_iterable(numbered))
        file.flush()
    except OSError as error:
        raise _unusable(scratch, error) from None
    return begin, file.tell()


def _read_run(file: IO[bytes], run: _Run, read_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The entries of a run, in their order."""
    content = io.BufferedReader(_Section(file.fileno(), *run), read_bytes)
    while head := content.read(_ENTRY.size):
        number, length = _ENTRY.unpack(head)
        # Of the record's own header the length is read already.
        yield number, head[8:] + content.read(HEADER_BYTES - 8 + length + FOOTER_BYTES)


class _Section(io.RawIOBase):
    """Part of a file that others read elsewhere."""

    def __init__(self, descriptor: int, begin: int, end: int):
        self._descriptor, self._at, self._end = descriptor, begin, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._end - self._at)
        count = os.preadv(self._descriptor, [memoryview(buffer)[:wanted]], self._at)
        self._at += count
        return count


def _unusable(scratch: str, error: OSError) -> UserError:
    return UserError(
        f"the shuffle keeps the records in a temporary file in {scratch}, which cannot be written "
        f"({error.strerror}); it needs as much room as the shards do, and beside them (for gs:// "
        "TMPDIR names another directory)"
    )
