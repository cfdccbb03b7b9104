"""Shuffles all records of a dataset, and warns of records that come in runs of equal values.

Training shuffles some thousand neighbouring records of a shard, not the whole dataset. Where
records are sorted by class or user, its batches hold few of them, and the model ends worse.
"""

import contextlib
import heapq
import io
import itertools
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import byte_size
from tfps.data import bad_records, examples
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema
from tfps.data.tfrecord import FOOTER_BYTES, HEADER_BYTES, scan
from tfps.errors import UserError
from tfps.storage.failures import of_named
from tfps.storage.paths import is_local

MEMORY_BYTES = 512 << 20  # of records that are held at once
_OVERHEAD_BYTES = 160  # what Python needs for a record and its number, besides its bytes
_LEAST_READ_BYTES = 64 << 10
_DRAWN_AT_ONCE = 4096
_ENTRY = struct.Struct("<QQ")  # a record's number; then the record, which begins with its length
_Run = tuple[int, int]  # where it begins and ends in the file
SHUFFLED_RECORDS = 8192  # neighbours of a shard, by the default of `Data.shuffle_buffer`
ALIKE = 0.5  # of the pairs of neighbours that chance would not make equal
_LEAST_RECORDS = 200  # that show an order that is not by chance
_STRETCHES, _SAMPLED_RECORDS, _SAMPLED_BYTES = 256, 8192, 64 << 20
_SHOWN_COLUMNS = 4


def whole_shuffle(
    records: Iterable[bytes], seed: int, scratch: str, memory_bytes: int = MEMORY_BYTES
) -> Iterator[bytes]:
    """Reads all records, then gives them back in a drawn order.

    At most `memory_bytes` of them are held at once. Sorted runs are read through buffers of that
    size together, each of 64 KiB at least.
    """
    runs: list[_Run] = []
    held: list[tuple[int, bytes]] = []
    size = 0
    with _temporary_file(scratch) as file:
        for entry in zip(drawn_numbers(seed), records):  # noqa: B905 (the numbers have no end)
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
    """A sentence on the room that a shuffle of `size` bytes needs; empty if memory is enough."""
    if size < MEMORY_BYTES:
        return ""
    return (
        f"the shuffle needs room in {scratch_for(directory)} for all records, in addition to the "
        f"shards, until it is done; the input has {byte_size.show(size)}"
    )


def drawn_numbers(seed: int | Sequence[int]) -> Iterator[int]:
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
        f"({error.strerror}); it needs as much room as the shards, in addition to them (for gs:// "
        "TMPDIR names another directory)"
    )


def describe(dataset: Manifest, hint: str) -> str:
    """What to say of a dataset whose records come in runs, by labels and features of one value.

    Empty if they do not. About 8,192 records are read, or 64 MiB; of compressed shards the first
    ones.
    """
    schema = Schema.of(dataset)
    judged = [each for each in (*schema.labels, *schema.features) if each.size == 1]
    try:
        sampled = _sample(dataset, judged)
    except tf.errors.OpError as error:
        raise of_named(error, dataset.directory) from None
    records = [record for _, some in sampled for record in some]
    if len(records) < _LEAST_RECORDS or not judged:
        return ""
    values, _ = examples.parse(tf.constant(records), judged)
    shards = np.repeat([shard for shard, _ in sampled], [len(some) for _, some in sampled])
    # Training shuffles the whole of a short shard, so that all its records are neighbours.
    are_short = np.array([shard.records <= SHUFFLED_RECORDS for shard in dataset.shards])[shards]
    blocks = np.where(are_short, shards, -1 - np.arange(len(shards)) // 2)
    found = {each: _runs(values[each.name].numpy().reshape(-1), blocks) for each in judged}
    if not (columns := [each for each in judged if found[each] >= ALIKE]):
        return ""
    named = ", ".join(
        f"{'label ' if each in schema.labels else ''}{each.name!r} by {found[each]:.2f}"
        for each in columns[:_SHOWN_COLUMNS]
    )
    more = len(columns) - _SHOWN_COLUMNS
    return (
        f"the records are sorted, or come in long runs: neighbours are equal in {named}"
        f"{f' and in {more} more' if more > 0 else ''} (0 in a random order, 1 always). Training "
        f"shuffles {SHUFFLED_RECORDS:,} neighbours of a shard at a time, so batches hold few of "
        "these values, and most models end worse. Leave it if this is the order of time and "
        f"training is to follow it; otherwise {hint} writes the records in a drawn order"
    )


def _runs(values: npt.NDArray[np.generic], blocks: npt.NDArray[np.int64]) -> float:
    """How many pairs within blocks are equal: 0 as many as anywhere, 1 all of them."""
    kinds, numbers = np.unique(values, return_inverse=True)
    if len(kinds) == 1:
        return 0.0
    equal = _pairs(numbers) / (len(values) * (len(values) - 1))
    equal_in_block = _pairs(blocks * len(kinds) + numbers) / max(1, _pairs(blocks))
    return (equal_in_block - equal) / (1 - equal)


def _pairs(values: npt.NDArray[np.int64]) -> int:
    """Number of ordered pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1)).sum())


def _sample(dataset: Manifest, features: Sequence[Feature]) -> list[tuple[int, list[bytes]]]:
    """Stretches of good records, spread evenly over the dataset, each with its shard's number."""
    known = [
        (number, entry * dataset.index.stride, offset)
        for number, shard in enumerate(dataset.shards)
        for entry, offset in enumerate(
            [0] if shard.compression else dataset.index.offsets[number].tolist()
        )
    ]
    count = min(len(known), _STRETCHES)
    chosen = [known[number * len(known) // count] for number in range(count)]
    record_bytes = dataset.bytes / max(1, dataset.records)
    most = min(_SAMPLED_RECORDS, int(_SAMPLED_BYTES / max(1, record_bytes))) // max(1, count)
    length = min(dataset.index.stride, max(2, most))

    def read(stretch: tuple[int, int, int]) -> list[bytes]:
        number, first, offset = stretch
        shard = dataset.shards[number]
        path, size = dataset.path_of(shard), int(length * record_bytes * 1.1)
        stored = scan(path, shard.compression, first, offset, read_bytes=size)
        return [
            each.data
            for each in itertools.islice(stored, length)
            if each.data is not None
            and not each.problem
            and not bad_records.find_problem(each.data, features)
        ]

    with ThreadPoolExecutor(max_workers=16) as pool:  # in a bucket each takes its time
        return list(zip((shard for shard, _, _ in chosen), pool.map(read, chosen), strict=True))
