"""Reads parameters from the files of checkpoints."""

import concurrent.futures
import posixpath
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfps.checkpoint.damage import Damage
from tfps.checkpoint.increment import Increment, numbers_name, slice_specs, values_name
from tfps.checkpoint.part_file import PREFIX
from tfps.cluster.failures import first_line
from tfps.errors import UserError
from tfps.store.partitioned_variable import Piece

_SHARD = re.compile(r" shard (\d+) ")


def read(pieces: Sequence[Piece], directory: str) -> None:
    """Overwrites all pieces: every ps at the same time, one chunk after the other.

    Not as one graph, in which a third of the chunks were seen to be held at once.

    Raises:
        Damage: If TensorFlow finds that a file is not what was written. No ps is reading any more.
        UserError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    _on_every_ps(pieces, directory, _read_whole)


def read_touched(pieces: Sequence[Piece], directory: str, increment: Increment) -> None:
    """Overwrites the rows that an increment holds, and marks them as touched.

    Args:
        pieces: Of the groups that it holds rows of.
        directory: Where it is.
        increment: Says where they are.

    Raises:
        Damage, UserError, tf.errors.OpError: As `read`.
    """
    _on_every_ps(pieces, directory, lambda piece, prefix: _read_runs(piece, prefix, increment))


def _on_every_ps(
    pieces: Sequence[Piece], directory: str, read_piece: Callable[[Piece, str], None]
) -> None:
    if not pieces:
        return
    prefix = posixpath.join(directory, PREFIX)
    devices = list(dict.fromkeys(piece.device for piece in pieces))
    pool = concurrent.futures.ThreadPoolExecutor(len(devices), "restore")
    try:
        reads = [
            pool.submit(
                _read_on, device, [p for p in pieces if p.device == device], prefix, read_piece
            )
            for device in devices
        ]
        # All, before anything else is written to the pieces.
        concurrent.futures.wait(reads)
        for done in reads:
            done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_on(
    device: str, pieces: Sequence[Piece], prefix: str, read_piece: Callable[[Piece, str], None]
) -> None:
    try:
        with tf.device(device):
            for piece in pieces:
                read_piece(piece, prefix)
                tf.raw_ops.DisableCopyOnRead(resource=piece.variable.handle)
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise Damage(_altered(error, prefix)) from None
    except tf.errors.NotFoundError:  # The chief has just seen it.
        raise UserError(
            f"{prefix}.* is there for the chief, but not for {device}; every ps must see the files "
            "in --job_dir"
        ) from None


def _read_whole(piece: Piece, prefix: str) -> None:
    for first, count in piece.chunks():
        (value,) = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=[piece.name],
            shape_and_slices=[piece.slice_spec(first, count)],
            dtypes=[piece.variable.dtype],
        )
        piece.write(first, value)


def _read_runs(piece: Piece, prefix: str, increment: Increment) -> None:
    first, end = piece.rows
    touched = increment.touched(piece.name)
    for before, run in increment.offsets(piece.name):
        if run.first >= end or run.end <= first:
            continue
        numbers, values = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=[numbers_name(piece.name), values_name(piece.name)],
            shape_and_slices=slice_specs(touched, piece.row_values, before, run.touched),
            dtypes=[tf.int64, piece.variable.dtype],
        )
        mine = tf.reshape(tf.where((numbers >= first) & (numbers < end)), [-1])
        rows = tf.gather(numbers, mine) - first
        piece.write_rows(rows, tf.gather(values, mine))


def _altered(error: tf.errors.OpError, prefix: str) -> str:
    """Which file TensorFlow finds altered, and what it says."""
    text = first_line(error)
    found = _SHARD.search(text)
    names = tf.io.gfile.glob(f"{prefix}.data-{int(found[1]):05d}-of-*") if found else []
    file = posixpath.basename(names[0]) if names else f"a file of {PREFIX}.*"
    return f"{file} was altered ({text})"
