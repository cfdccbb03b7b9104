"""Checks a checkpoint's files and restores what they hold."""

import concurrent.futures
import contextlib
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import (
    PREFIX,
    Checkpoint,
    DamagedCheckpointError,
    Increment,
    numbers_name,
    slice_specs,
    values_name,
)
from tfps.cluster.failures import first_line
from tfps.errors import UserError
from tfps.store.partitioned_variable import TensorSlice

_SHARD = re.compile(r" shard (\d+) ")
# By a ps: while one waits for the disk another is checked and put in its place.
_CHUNKS_AT_ONCE = 2
_Read = Callable[[Sequence[TensorSlice], str], None]  # slices of one ps, and a checkpoint's prefix


class UnseenFilesError(UserError):
    """A ps does not see files of a checkpoint that the chief has just seen."""


def check(checkpoint: Checkpoint) -> None:
    """Compares the files that a checkpoint needs with the markers, without reading values."""
    for file in checkpoint.files:
        file.check(checkpoint.path)
    if base := _base(checkpoint):
        try:
            for file in base.files:
                file.check(base.path)
        except DamagedCheckpointError as damage:
            raise of_base(base.name, damage) from None


def read(checkpoint: Checkpoint, slices: Sequence[TensorSlice]) -> None:
    """Overwrites all slices with the values of a checkpoint that was checked before."""
    increment = checkpoint.increment
    if increment is None:
        _on_every_ps(slices, checkpoint.path, _read_chunks)
        return
    tables = [slice_ for slice_ in slices if slice_.name in increment.tensors]
    others = [slice_ for slice_ in slices if slice_.name not in increment.tensors]
    try:
        _on_every_ps(tables, checkpoint.base_path, _read_chunks)
    except DamagedCheckpointError as damage:
        raise of_base(increment.base.name, damage) from None
    _on_every_ps(others, checkpoint.path, _read_chunks)

    def read_touched(mine: Sequence[TensorSlice], prefix: str) -> None:
        for slice_ in mine:
            _read_runs(slice_, prefix, increment)

    _on_every_ps(tables, checkpoint.path, read_touched)


def _base(checkpoint: Checkpoint) -> Checkpoint | None:
    """The base of an increment; None for a full checkpoint."""
    if checkpoint.increment is None:
        return None
    wanted = checkpoint.increment.base
    try:
        found = commit_marker.read(checkpoint.base_path)
    except FileNotFoundError:
        raise DamagedCheckpointError(f"its base {wanted.name} is missing") from None
    except DamagedCheckpointError as damage:
        raise of_base(wanted.name, damage) from None
    if found.base != wanted:
        raise DamagedCheckpointError(
            f"its base {wanted.name} was replaced by another checkpoint of that name"
        )
    return found


def of_base(name: str, damage: DamagedCheckpointError) -> DamagedCheckpointError:
    """The damage of an increment's base as damage of the increment."""
    return DamagedCheckpointError(f"its base {name} is damaged: {damage}")


def _on_every_ps(slices: Sequence[TensorSlice], directory: str, read: _Read) -> None:
    if not slices:
        return
    prefix = posixpath.join(directory, PREFIX)
    devices = list(dict.fromkeys(slice_.device for slice_ in slices))
    pool = concurrent.futures.ThreadPoolExecutor(len(devices), "restore")
    try:
        reads = [
            pool.submit(_read_on, device, [p for p in slices if p.device == device], prefix, read)
            for device in devices
        ]
        # All, before anything else is written to the slices.
        concurrent.futures.wait(reads)
        for done in reads:
            done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_on(device: str, slices: Sequence[TensorSlice], prefix: str, read: _Read) -> None:
    with explained(device, prefix), tf.device(device):
        read(slices, prefix)
        for slice_ in slices:
            tf.raw_ops.DisableCopyOnRead(resource=slice_.variable.handle)


@contextlib.contextmanager
def explained(device: str, prefix: str) -> Iterator[None]:
    """While a ps reads: turns TensorFlow's errors into what is wrong with the checkpoint."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise DamagedCheckpointError(_altered(error, prefix)) from None
    except tf.errors.NotFoundError:  # The chief has just seen it.
        raise UnseenFilesError(
            f"{prefix}.* is there for the chief, but not for {device}; every ps must see that "
            "directory"
        ) from None


def _read_chunks(slices: Sequence[TensorSlice], prefix: str) -> None:
    """Overwrites the slices of a ps in one graph, some chunks at a time.

    A ps runs operations by themselves one after the other, from however many threads; so does the
    graph of a `tf.function` with those that have state.
    """
    device = slices[0].device
    rows = [(slice_, first, count) for slice_ in slices for first, count in slice_.chunks()]

    def graph() -> tf.Tensor:
        with tf.device(device):
            last = [
                _read_in_turn(rows[lane::_CHUNKS_AT_ONCE], prefix)
                for lane in range(min(_CHUNKS_AT_ONCE, len(rows)))
            ]
            with tf.control_dependencies(last):
                return tf.constant(len(rows))

    tf.compat.v1.wrap_function(graph, [])()


def _read_in_turn(rows: Sequence[tuple[TensorSlice, int, int]], prefix: str) -> tf.Operation:
    """Overwrites chunks one after the other; in a graph."""
    written: list[tf.Operation] = []
    for slice_, first, count in rows:
        with tf.control_dependencies(written[-1:]):
            (value,) = tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=[slice_.name],
                shape_and_slices=[slice_.slice_spec(first, count)],
                dtypes=[slice_.variable.dtype],
            )
            value.set_shape([count, *slice_.shape[1:]])
            written.append(slice_.write(first, value))
    return written[-1]


def _read_runs(slice_: TensorSlice, prefix: str, increment: Increment) -> None:
    """Overwrites the rows of an increment, and marks them as touched."""
    first, end = slice_.rows
    touched = increment.touched(slice_.name)
    for before, run in increment.offsets(slice_.name):
        if run.first >= end or run.end <= first:
            continue
        numbers, values = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=[numbers_name(slice_.name), values_name(slice_.name)],
            shape_and_slices=slice_specs(touched, slice_.row_values, before, run.touched),
            dtypes=[tf.int64, slice_.variable.dtype],
        )
        mine = tf.reshape(tf.where((numbers >= first) & (numbers < end)), [-1])
        rows = tf.gather(numbers, mine) - first
        slice_.write_rows(rows, tf.gather(values, mine))


def _altered(error: tf.errors.OpError, prefix: str) -> str:
    """Which file TensorFlow finds altered, and its message."""
    text = first_line(error)
    found = _SHARD.search(text)
    names = tf.io.gfile.glob(f"{prefix}.data-{int(found[1]):05d}-of-*") if found else []
    file = posixpath.basename(names[0]) if names else f"a file of {PREFIX}.*"
    return f"{file} was altered ({text})"
