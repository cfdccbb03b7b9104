"""Writes a checkpoint's values: whole variables, touched rows, and the index that joins them."""

import functools
import posixpath
import time
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.checkpoint import PREFIX, Increment, numbers_name, slice_specs, values_name
from tfps.checkpoint.increments import trace_now
from tfps.checkpoint.keyed_snapshot import KeyedSnapshot, Pace
from tfps.cluster.fetching import fetched
from tfps.store.partitioned_variable import TensorSlice

# Of a ps. Each turn is a graph on every task, and a file that storage renames.
TURN_BYTES, _MOST_TURNS = 128 << 20, 4
_Chunk = tuple[TensorSlice, int, int]  # with its first row and number of rows
# What a slice is asked for: for every run, where to write it; its bounds, as rows of the slice; and
# what it is of the tensor of numbers and of that of values.
_SIGNATURE = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None, 2], tf.int64),
    tf.TensorSpec([None, 2], tf.string),
)


class RowWriter:
    """Writes rows of slices whose marks are frozen, run by run, each its own file.

    So a ps holds the rows of one run in addition to its values: at most a chunk.
    """

    def __init__(self, slices: Sequence[TensorSlice]):
        self._slices = slices
        if slices:
            self._save = trace_now(self._graph, _SIGNATURE * len(slices))

    def write(self, prefix: str, increment: Increment) -> list[str]:
        """Writes an increment's rows, all ps at the same time."""
        arguments: list[tf.Tensor] = []
        written: list[str] = []
        for slice_ in self._slices:
            first, end = slice_.rows
            offsets, total = increment.offsets(slice_.name), increment.touched(slice_.name)
            mine = [(before, run) for before, run in offsets if first <= run.first < end]
            prefixes = [f"{prefix}.rows-{len(written) + k}" for k in range(len(mine))]
            bounds = [(run.first - first, run.end - first) for _, run in mine]
            specs = [
                slice_specs(total, slice_.row_values, before, run.touched) for before, run in mine
            ]
            arguments += [
                tf.constant(prefixes, tf.string),
                tf.reshape(tf.constant(bounds, tf.int64), [-1, 2]),
                tf.reshape(tf.constant(specs, tf.string), [-1, 2]),
            ]
            written += prefixes
        if written:
            self._save(*arguments)
        return written

    def _graph(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        counts: list[tf.Tensor] = []
        last_on: dict[str, list[tf.Tensor]] = {}
        for index, slice_ in enumerate(self._slices):
            # One slice of a ps after the other.
            before = last_on.get(slice_.device, [])
            with tf.device(slice_.device), tf.control_dependencies(before):
                counts.append(_write(slice_, *arguments[3 * index : 3 * index + 3]))
            last_on[slice_.device] = counts[-1:]
        return counts


def _write(
    slice_: TensorSlice, prefixes: tf.Tensor, bounds: tf.Tensor, specs: tf.Tensor
) -> tf.Tensor:
    """Writes the runs of a slice; returns how many."""
    assert slice_.touched
    touched = slice_.touched
    first, _ = slice_.rows
    rows = tf.reshape(slice_.read(), [-1, slice_.row_values])
    names = [numbers_name(slice_.name), values_name(slice_.name)]

    def write_run(index: tf.Tensor) -> list[tf.Tensor]:
        numbers = touched.select(bounds[index, 0], bounds[index, 1])
        saved = tf.raw_ops.SaveV2(
            prefix=prefixes[index],
            tensor_names=names,
            shape_and_slices=specs[index],
            tensors=[first + numbers, tf.gather(rows, numbers)],
        )
        with tf.control_dependencies([saved]):  # TensorFlow runs a save only for what waits for it
            return [index + 1]

    (count,) = tf.while_loop(
        lambda index: index < tf.size(prefixes), write_run, [0], parallel_iterations=1
    )
    return count


class SliceWriter:
    """Writes the same slices whole, repeatedly, as logical tensors in slices.

    In turns: each writes a part of every ps's chunks into a file of that ps.
    """

    def __init__(self, slices: Sequence[TensorSlice], most_turns: int):
        devices = dict.fromkeys(slice_.device for slice_ in slices)
        of_ps = [[slice_ for slice_ in slices if slice_.device == each] for each in devices]
        most = max((sum(slice_.total_bytes for slice_ in some) for some in of_ps), default=0)
        turns = min(most_turns, 1 + most // TURN_BYTES)
        self._turns = list(zip(*(_in_turns(some, turns) for some in of_ps), strict=True))
        signature = [tf.TensorSpec([], tf.string)]
        self._saves = [
            trace_now(functools.partial(self._graph, turn), signature)
            for turn, chunks in enumerate(self._turns)
            if any(chunks)
        ]

    def write(self, prefix: str, pace: Pace) -> list[str]:
        """Writes all slices, all ps at the same time."""
        written: list[str] = []
        place = tf.constant(prefix)
        for save in self._saves:
            began = time.monotonic()
            written += [fetched(each).decode() for each in save(place)]
            if save is not self._saves[-1]:
                pace.rest(time.monotonic() - began)
        return written

    def _graph(self, turn: int, prefix: tf.Tensor) -> list[tf.Tensor]:
        written = []
        for number, chunks in enumerate(self._turns[turn]):
            if not chunks:  # with fewer values than ps, some have none
                continue
            with tf.device(chunks[0][0].device):
                prefix_of_ps = tf.strings.join([prefix, f".part-{turn}-{number}"])
                save = tf.raw_ops.SaveV2(
                    prefix=prefix_of_ps,
                    tensor_names=[slice_.name for slice_, _, _ in chunks],
                    shape_and_slices=[slice_.slice_spec(*rows) for slice_, *rows in chunks],
                    tensors=[slice_.value(*rows) for slice_, *rows in chunks],
                )
                # TensorFlow runs a save only for what waits for it.
                with tf.control_dependencies([save]):
                    written.append(tf.identity(prefix_of_ps))
        return written


def _in_turns(slices: Sequence[TensorSlice], turns: int) -> list[list[_Chunk]]:
    """The chunks of one ps in lists of about equal bytes."""
    total = max(1, sum(slice_.total_bytes for slice_ in slices))
    parts: list[list[_Chunk]] = [[] for _ in range(turns)]
    before = 0
    for slice_ in slices:
        for first, count in slice_.chunks():
            parts[min(turns - 1, before * turns // total)].append((slice_, first, count))
            before += slice_.chunk_bytes(count)
    return parts


class CheckpointWriter:
    """Writes the same slices, repeatedly, as a TensorFlow checkpoint."""

    def __init__(self, slices: Sequence[TensorSlice], rests: bool = False):
        untracked = [slice_ for slice_ in slices if not slice_.touched]
        self._all = SliceWriter(slices, _MOST_TURNS if rests else 1)
        self._untracked = SliceWriter(untracked, most_turns=1)  # increments are small
        self._rows = RowWriter([slice_ for slice_ in slices if slice_.touched])
        self._join = trace_now(
            _join, [tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.string)]
        )

    def write(
        self,
        directory: str,
        increment: Increment | None,
        keyed: KeyedSnapshot | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Writes everything, or an increment, and joins the indices of all that was written."""
        pace, prefix = pace or Pace(0.0), posixpath.join(directory, PREFIX)
        if increment is None:
            written = self._all.write(prefix, pace)
        else:
            written = self._untracked.write(prefix, pace) + self._rows.write(prefix, increment)
        if keyed:
            written += keyed.write(prefix, pace)
        self._join(tf.constant(written, tf.string), tf.constant(prefix))


def _join(prefixes: tf.Tensor, prefix: tf.Tensor) -> tf.Tensor:
    joined = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    with tf.control_dependencies([joined]):
        return tf.identity(prefix)
