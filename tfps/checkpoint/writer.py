"""Writes a checkpoint's values: whole variables, touched rows, and the index that joins them."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.checkpoint import PREFIX, Increment, numbers_name, slice_specs, values_name
from tfps.checkpoint.trace_now import trace_now
from tfps.store.partitioned_variable import TensorSlice

# What a slice is asked for: for every run, where to write it; its bounds, as rows of the slice; and
# what it is of the tensor of numbers and of that of values.
_SIGNATURE = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None, 2], tf.int64),
    tf.TensorSpec([None, 2], tf.string),
)


class RowWriter:
    """Writes those rows of slices whose marks are frozen: a run after the other, each its own file.

    So a ps holds the rows of one run beside its own values, at most a chunk.
    """

    def __init__(self, slices: Sequence[TensorSlice]):
        """Makes the graph.

        Args:
            slices: Of groups that track which rows were touched.
        """
        self._slices = slices
        if slices:
            self._save = trace_now(self._graph, _SIGNATURE * len(slices))

    def write(self, directory: str, increment: Increment) -> list[str]:
        """Writes an increment's rows, each ps its own at the same time.

        Args:
            directory: Of the checkpoint.
            increment: Planned with the marks that are frozen.

        Returns:
            Prefixes of what was written, to be merged.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        prefix = posixpath.join(directory, PREFIX)
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
    """Writes the same slices whole as often as wanted, as logical tensors in slices."""

    def __init__(self, slices: Sequence[TensorSlice]):
        """Makes the graph.

        Args:
            slices: What to write.
        """
        devices = dict.fromkeys(slice_.device for slice_ in slices)
        by_device = [[slice_ for slice_ in slices if slice_.device == each] for each in devices]
        # With fewer values than ps, some have none.
        self._by_ps = [some for some in by_device if any(slice_.count for slice_ in some)]
        self._save = trace_now(self._graph, [tf.TensorSpec([], tf.string)])

    def write(self, directory: str) -> list[str]:
        """Writes all slices, each ps its own at the same time.

        Returns:
            Prefixes of what was written, to be merged.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        prefix = tf.constant(posixpath.join(directory, PREFIX))
        return [written.numpy().decode() for written in self._save(prefix)]

    def _graph(self, prefix: tf.Tensor) -> list[tf.Tensor]:
        written = []
        for number, slices in enumerate(self._by_ps):
            chunks = [(slice_, chunk) for slice_ in slices for chunk in slice_.chunks()]
            with tf.device(slices[0].device):
                prefix_of_ps = tf.strings.join([prefix, f".part-{number}"])
                save = tf.raw_ops.SaveV2(
                    prefix=prefix_of_ps,
                    tensor_names=[slice_.name for slice_, _ in chunks],
                    shape_and_slices=[slice_.slice_spec(*chunk) for slice_, chunk in chunks],
                    tensors=[value for slice_ in slices for value in slice_.values()],
                )
                # TensorFlow runs a save only for what waits for it.
                with tf.control_dependencies([save]):
                    written.append(tf.identity(prefix_of_ps))
        return written


class CheckpointWriter:
    """Writes the same slices as often as wanted, as a TensorFlow checkpoint."""

    def __init__(self, slices: Sequence[TensorSlice]):
        """Makes the graphs.

        Args:
            slices: What to write.
        """
        self._all = SliceWriter(slices)
        self._untracked = SliceWriter([slice_ for slice_ in slices if not slice_.touched])
        self._rows = RowWriter([slice_ for slice_ in slices if slice_.touched])
        self._join = trace_now(
            _join, [tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.string)]
        )

    def write(self, directory: str, increment: Increment | None) -> None:
        """Writes everything, or what an increment holds; joins the indices of all that was written.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        if increment is None:
            written = self._all.write(directory)
        else:
            written = self._untracked.write(directory) + self._rows.write(directory, increment)
        self._join(tf.constant(written, tf.string), tf.constant(posixpath.join(directory, PREFIX)))


def _join(prefixes: tf.Tensor, prefix: tf.Tensor) -> tf.Tensor:
    joined = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    with tf.control_dependencies([joined]):
        return tf.identity(prefix)
