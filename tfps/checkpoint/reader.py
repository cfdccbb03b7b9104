"""Checks a checkpoint's files and restores what they hold."""

import collections
import concurrent.futures
import functools
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import (
    PREFIX,
    Checkpoint,
    Increment,
    numbers_name,
    slice_specs,
    values_name,
)
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.cluster.failures import first_line
from tfps.errors import UserError
from tfps.store.partitioned_variable import TensorSlice

_SHARD = re.compile(r" shard (\d+) ")
# By a ps: while one waits for the disk another checks what has come and puts it in its place.
_READS_AT_ONCE = 2
_Read = Callable[[], None]


class UnseenFilesError(UserError):
    """A ps does not see the files of a checkpoint that the chief has seen before it was read."""


def check(checkpoint: Checkpoint) -> None:
    """Holds the files that a checkpoint needs against the markers, without reading values.

    Raises:
        DamagedCheckpointError: If one differs, also one of its base.
        StorageError: If the storage does not answer.
    """
    for file in checkpoint.files:
        file.check(checkpoint.path)
    if base := _base(checkpoint):
        try:
            for file in base.files:
                file.check(base.path)
        except DamagedCheckpointError as damage:
            raise _of_base(base.name, damage) from None


def read(checkpoint: Checkpoint, slices: Sequence[TensorSlice]) -> None:
    """Overwrites all slices with what a checkpoint holds, which was checked before.

    Raises:
        DamagedCheckpointError: If a file that it needs is damaged; the slices hold parts of it.
        UnseenFilesError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    increment = checkpoint.increment
    if increment is None:
        _read_slices(slices, checkpoint.path)
        return
    tables = [slice_ for slice_ in slices if slice_.name in increment.tensors]
    others = [slice_ for slice_ in slices if slice_.name not in increment.tensors]
    try:
        _read_slices(tables, _base_path(checkpoint))
    except DamagedCheckpointError as damage:
        raise _of_base(increment.base.name, damage) from None
    _read_slices(others, checkpoint.path)
    _read_touched_rows(tables, checkpoint.path, increment)


def _base(checkpoint: Checkpoint) -> Checkpoint | None:
    """The base of an increment; None for a full checkpoint."""
    if checkpoint.increment is None:
        return None
    wanted = checkpoint.increment.base
    try:
        found = commit_marker.read(_base_path(checkpoint))
    except FileNotFoundError:
        raise DamagedCheckpointError(f"its base {wanted.name} is missing") from None
    except DamagedCheckpointError as damage:
        raise _of_base(wanted.name, damage) from None
    if found.base != wanted:
        raise DamagedCheckpointError(
            f"its base {wanted.name} was replaced by another checkpoint of that name"
        )
    return found


def _base_path(checkpoint: Checkpoint) -> str:
    return posixpath.join(posixpath.dirname(checkpoint.path), checkpoint.base.name)


def _of_base(name: str, damage: DamagedCheckpointError) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"its base {name} is damaged: {damage}")


def _read_slices(slices: Sequence[TensorSlice], directory: str) -> None:
    """Overwrites all slices: every ps at the same time, some chunks of it at a time.

    Not as one graph, in which a third of the chunks were seen to be held at once.

    Raises:
        DamagedCheckpointError: If TensorFlow finds that a file is not what was written. No ps is
            reading any more.
        UnseenFilesError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    _on_every_ps(slices, directory, _chunk_reads)


def _read_touched_rows(slices: Sequence[TensorSlice], directory: str, increment: Increment) -> None:
    """Overwrites the rows that an increment holds, and marks them as touched.

    Args:
        slices: Of the groups that it holds rows of.
        directory: Where it is.
        increment: Says where they are.

    Raises:
        DamagedCheckpointError, UnseenFilesError, tf.errors.OpError: As `_read_slices`.
    """
    _on_every_ps(slices, directory, lambda slice_, prefix: _run_reads(slice_, prefix, increment))


def _on_every_ps(
    slices: Sequence[TensorSlice],
    directory: str,
    reads: Callable[[TensorSlice, str], Iterator[_Read]],
) -> None:
    """Has every ps read, in some threads for each, what its slices need."""
    if not slices:
        return
    prefix = posixpath.join(directory, PREFIX)
    devices = list(dict.fromkeys(slice_.device for slice_ in slices))
    pool = concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE * len(devices), "restore")
    try:
        readers = []
        for device in devices:
            waiting: collections.deque[_Read] = collections.deque(
                read
                for slice_ in slices
                if slice_.device == device
                for read in reads(slice_, prefix)
            )
            readers += [
                pool.submit(_read_on, device, waiting, prefix) for _ in range(_READS_AT_ONCE)
            ]
        # All, before anything else is written to the slices.
        concurrent.futures.wait(readers)
        for done in readers:
            done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for slice_ in slices:
        with tf.device(slice_.device):
            tf.raw_ops.DisableCopyOnRead(resource=slice_.variable.handle)


def _read_on(device: str, waiting: collections.deque[_Read], prefix: str) -> None:
    """Reads what nobody else has begun to read; nobody goes on once something cannot be read."""
    try:
        with tf.device(device):
            while read := _next(waiting):
                read()
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise DamagedCheckpointError(_altered(error, prefix)) from None
    except tf.errors.NotFoundError:  # The chief has just seen it.
        raise UnseenFilesError(
            f"{prefix}.* is there for the chief, but not for {device}; every ps must see that "
            "directory"
        ) from None
    finally:
        waiting.clear()


def _next(waiting: collections.deque[_Read]) -> _Read | None:
    try:
        return waiting.popleft()
    except IndexError:  # nothing waits any more
        return None


def _chunk_reads(slice_: TensorSlice, prefix: str) -> Iterator[_Read]:
    """What reads a whole slice."""
    for first, count in slice_.chunks():
        yield functools.partial(_read_chunk, slice_, prefix, first, count)


def _read_chunk(slice_: TensorSlice, prefix: str, first: int, count: int) -> None:
    (value,) = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=[slice_.name],
        shape_and_slices=[slice_.slice_spec(first, count)],
        dtypes=[slice_.variable.dtype],
    )
    slice_.write(first, value)


def _run_reads(slice_: TensorSlice, prefix: str, increment: Increment) -> Iterator[_Read]:
    """What reads the touched rows of a slice."""
    first, end = slice_.rows
    touched = increment.touched(slice_.name)
    for before, run in increment.offsets(slice_.name):
        if run.first < end and run.end > first:
            specs = slice_specs(touched, slice_.row_values, before, run.touched)
            yield functools.partial(_read_run, slice_, prefix, specs)


def _read_run(slice_: TensorSlice, prefix: str, specs: tuple[str, str]) -> None:
    first, end = slice_.rows
    numbers, values = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=[numbers_name(slice_.name), values_name(slice_.name)],
        shape_and_slices=specs,
        dtypes=[tf.int64, slice_.variable.dtype],
    )
    mine = tf.reshape(tf.where((numbers >= first) & (numbers < end)), [-1])
    rows = tf.gather(numbers, mine) - first
    slice_.write_rows(rows, tf.gather(values, mine))


def _altered(error: tf.errors.OpError, prefix: str) -> str:
    """Which file TensorFlow finds altered, and what it says."""
    text = first_line(error)
    found = _SHARD.search(text)
    names = tf.io.gfile.glob(f"{prefix}.data-{int(found[1]):05d}-of-*") if found else []
    file = posixpath.basename(names[0]) if names else f"a file of {PREFIX}.*"
    return f"{file} was altered ({text})"
