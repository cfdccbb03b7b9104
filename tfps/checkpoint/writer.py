"""Writes a checkpoint's values: whole variables, touched rows, and the index that joins them."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.checkpoint import PREFIX, Increment, numbers_name, slice_specs, values_name
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


class PieceWriter:
    """Writes the same pieces whole as often as wanted, as logical tensors in slices."""

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graph.

        Args:
            pieces: What to write.
        """
        devices = dict.fromkeys(piece.device for piece in pieces)
        by_device = [[piece for piece in pieces if piece.device == each] for each in devices]
        # With fewer values than ps, some have none.
        self._parts = [part for part in by_device if any(piece.count for piece in part)]
        self._save = ready_graph(self._graph, [tf.TensorSpec([], tf.string)])

    def write(self, directory: str) -> list[str]:
        """Writes all pieces, each ps its own at the same time.

        Returns:
            Prefixes of what was written, to be merged.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        prefix = tf.constant(posixpath.join(directory, PREFIX))
        return [written.numpy().decode() for written in self._save(prefix)]

    def _graph(self, prefix: tf.Tensor) -> list[tf.Tensor]:
        written = []
        for number, pieces in enumerate(self._parts):
            chunks = [(piece, chunk) for piece in pieces for chunk in piece.chunks()]
            with tf.device(pieces[0].device):
                part = tf.strings.join([prefix, f".part-{number}"])
                save = tf.raw_ops.SaveV2(
                    prefix=part,
                    tensor_names=[piece.name for piece, _ in chunks],
                    shape_and_slices=[piece.slice_spec(*chunk) for piece, chunk in chunks],
                    tensors=[value for piece in pieces for value in piece.values()],
                )
                # TensorFlow runs a save only for what waits for it.
                with tf.control_dependencies([save]):
                    written.append(tf.identity(part))
        return written


class CheckpointWriter:
    """Writes the same pieces as often as wanted, as a TensorFlow checkpoint."""

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graphs.

        Args:
            pieces: What to write.
        """
        self._all = PieceWriter(pieces)
        self._untracked = PieceWriter([piece for piece in pieces if not piece.touched])
        self._rows = RowWriter([piece for piece in pieces if piece.touched])
        self._join = ready_graph(
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
