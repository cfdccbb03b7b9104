"""Reads one TFRecord file whole: how many records, where they begin, whether they are good."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import bad_records, schema
from tfps.data.examples import Counts, RecordCounter
from tfps.data.feature import Feature
from tfps.data.shards import STRIDE, Shard
from tfps.data.tfrecord import StoredRecord, compression_of, scan
from tfps.errors import RunError
from tfps.storage import files
from trainer.console import file_progress

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 2  # items per process that are given out before a result is asked for
# So much is read sooner by this process than another one has loaded TensorFlow.
_BYTES_PER_PROCESS = 16 << 20
CHECKED_RECORDS = 64  # of each file, where no manifest says what they hold


def worthwhile(most: int, size: int) -> int:
    """How many processes, `most` at most, are worth their start for `size` bytes."""
    return min(most, 1 + size // _BYTES_PER_PROCESS)


class Processes:
    """Processes that end with their context; one is this very process.

    They are forked by a server that has loaded TensorFlow once and never used it: threads and
    connections of this process cannot hang in them.
    """

    def __init__(self, count: int, *modules: str):
        self._count = count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        if count > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["trainer.console.quiet_tensorflow", *modules])
            self._pool = concurrent.futures.ProcessPoolExecutor(
                count, context, _end_when_interrupted
            )

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[_Result]:
        """Results of items in order, asked for as processes become free; all is pickled."""
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: collections.deque[concurrent.futures.Future[_Result]] = collections.deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) >= _AHEAD * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise RunError(
                "a process ended unexpectedly, perhaps for lack of memory; try fewer --processes"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _end_when_interrupted() -> None:
    """Lets an interrupt from the terminal, which all processes get, end them without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclasses.dataclass(frozen=True)
class ShardScan:
    shard: Shard
    offsets: npt.NDArray[np.int64]  # bytes of every `STRIDE`th record; none of a compressed file
    damaged: tuple[StoredRecord, ...]  # without their bytes
    is_whole: bool  # could be read to its end; else the last damaged record ends it
    unfit: str  # what is wrong with the first record that does not fit the features
    counts: Counts


def scan_shard(
    path: str, features: Sequence[Feature], checked: int, may_lack: bool = False
) -> ShardScan:
    """Reads a TFRecord file whole; the first `checked` records must fit the features."""
    compression = compression_of(path)
    offsets: list[int] = []
    damaged: list[StoredRecord] = []
    unfit, records, is_whole = "", 0, True
    counter = RecordCounter(features)
    for record in scan(path, compression):
        if record.problem:
            damaged.append(StoredRecord(record.number, record.offset, None, record.problem))
        if record.data is None:
            is_whole = False
            break
        if record.number % STRIDE == 0 and not compression:
            offsets.append(record.offset)
        if record.number < checked and not unfit and not record.problem:
            found = bad_records.find_problem(record.data, features, may_lack)
            unfit = f"record {record.number} (byte {record.offset}) {found}" if found else ""
        counter.add(record.data)
        records += 1
    shard = Shard(
        path.rpartition("/")[2],
        records,
        tf.io.gfile.stat(path).length,
        files.checksum_of_file(path),
        compression,
    )
    places = np.array(offsets, np.int64)
    return ShardScan(shard, places, tuple(damaged), is_whole, unfit, counter.finish())


def refuse_absent(
    counts: Counts, records: int, features: Sequence[Feature], paths: Sequence[str], where: str
) -> None:
    """Refuses features that no record of some files has."""
    if any(counts[each.name].missing == records for each in features) and records:
        some = map(tf.train.Example.FromString, first_records(paths, CHECKED_RECORDS))
        names = sorted({name for each in some for name in each.features.feature})
        schema.refuse_absent(counts, records, features, names, where)


def first_records(paths: Sequence[str], most: int) -> Iterator[bytes]:
    """The first good records of some files."""
    records = (record for path in paths for record in scan(path, compression_of(path)))
    good = (
        record.data
        for record in records
        if record.data is not None
        and not record.problem
        and not bad_records.find_problem(record.data, (), may_lack=True)
    )
    return itertools.islice(good, most)


def scan_shards(
    paths: Sequence[str],
    processes: int,
    features: Sequence[Feature],
    checked: int,
    may_lack: bool = False,
) -> Iterator[ShardScan]:
    """Reads files at the same time, and shows the progress."""
    work = functools.partial(
        scan_shard, features=tuple(features), checked=checked, may_lack=may_lack
    )
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
