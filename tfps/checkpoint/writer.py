"""Writes touched rows to the files of a checkpoint."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.increment import Increment, numbers_name, slice_specs, values_name
from tfps.checkpoint.part_file import PREFIX
from tfps.checkpoint.ready_graph import ready_graph
from tfps.store.partitioned_variable import Piece

# What a piece is asked for: for every run, where to write it; its bounds, as rows of the piece; and
# what it is of the tensor of numbers and of that of values.
_SIGNATURE = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None, 2], tf.int64),
    tf.TensorSpec([None, 2], tf.string),
)


class RowWriter:
    """Writes those rows of pieces whose marks are frozen: a run after the other, each its own file.

    So a ps holds the rows of one run beside its own values, at most a chunk.
    """

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graph.

        Args:
            pieces: Of groups that track which rows were touched.
        """
        self._pieces = pieces
        if pieces:
            self._save = ready_graph(self._graph, _SIGNATURE * len(pieces))

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
        for piece in self._pieces:
            first, end = piece.rows
            offsets, total = increment.offsets(piece.name), increment.touched(piece.name)
            mine = [(before, run) for before, run in offsets if first <= run.first < end]
            prefixes = [f"{prefix}.rows-{len(written) + k}" for k in range(len(mine))]
            bounds = [(run.first - first, run.end - first) for _, run in mine]
            specs = [
                slice_specs(total, piece.row_values, before, run.touched) for before, run in mine
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
        for index, piece in enumerate(self._pieces):
            # One piece of a ps after the other.
            before = last_on.get(piece.device, [])
            with tf.device(piece.device), tf.control_dependencies(before):
                counts.append(_write(piece, *arguments[3 * index : 3 * index + 3]))
            last_on[piece.device] = counts[-1:]
        return counts


def _write(piece: Piece, prefixes: tf.Tensor, bounds: tf.Tensor, specs: tf.Tensor) -> tf.Tensor:
    """Writes the runs of a piece; returns how many."""
    assert piece.touched
    touched = piece.touched
    first, _ = piece.rows
    rows = tf.reshape(piece.read(), [-1, piece.row_values])
    names = [numbers_name(piece.name), values_name(piece.name)]

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
