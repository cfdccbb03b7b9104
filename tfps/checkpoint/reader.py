"""Checks a checkpoint's files and restores what they hold."""

import concurrent.futures
import posixpath
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import (
    PREFIX,
    Checkpoint,
    Damage,
    Increment,
    numbers_name,
    slice_specs,
    values_name,
)
from tfps.cluster.failures import first_line
from tfps.errors import UserError
from tfps.store.partitioned_variable import Piece

_SHARD = re.compile(r" shard (\d+) ")


def check(checkpoint: Checkpoint) -> None:
    """Holds the files that a checkpoint needs against the markers, without reading values.

    Raises:
        Damage: If one differs, also one of its base.
        StorageError: If the storage does not answer.
    """
    for file in checkpoint.files:
        file.check(checkpoint.path)
    if base := _base(checkpoint):
        try:
            for file in base.files:
                file.check(base.path)
        except Damage as damage:
            raise _of_base(base.name, damage) from None


def read(checkpoint: Checkpoint, pieces: Sequence[Piece]) -> None:
    """Overwrites all pieces with what a checkpoint holds, which was checked before.

    Raises:
        Damage: If a file that it needs is damaged; the pieces then hold parts of it.
        UserError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    increment = checkpoint.increment
    if increment is None:
        _read_pieces(pieces, checkpoint.path)
        return
    tables = [piece for piece in pieces if piece.name in increment.tensors]
    others = [piece for piece in pieces if piece.name not in increment.tensors]
    try:
        _read_pieces(tables, _base_path(checkpoint))
    except Damage as damage:
        raise _of_base(increment.base.name, damage) from None
    _read_pieces(others, checkpoint.path)
    _read_touched_rows(tables, checkpoint.path, increment)


def _base(checkpoint: Checkpoint) -> Checkpoint | None:
    """The base of an increment; None for a full checkpoint."""
    if checkpoint.increment is None:
        return None
    wanted = checkpoint.increment.base
    try:
        found = commit_marker.read(_base_path(checkpoint))
    except FileNotFoundError:
        raise Damage(f"its base {wanted.name} is missing") from None
    except Damage as damage:
        raise _of_base(wanted.name, damage) from None
    if found.base != wanted:
        raise Damage(f"its base {wanted.name} was replaced by another checkpoint of that name")
    return found


def _base_path(checkpoint: Checkpoint) -> str:
    return posixpath.join(posixpath.dirname(checkpoint.path), checkpoint.base.name)


def _of_base(name: str, damage: Damage) -> Damage:
    return Damage(f"its base {name} is damaged: {damage}")


def _read_pieces(pieces: Sequence[Piece], directory: str) -> None:
    """Overwrites all pieces: every ps at the same time, one chunk after the other.

    Not as one graph, in which a third of the chunks were seen to be held at once.

    Raises:
        Damage: If TensorFlow finds that a file is not what was written. No ps is reading any more.
        UserError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    _on_every_ps(pieces, directory, _read_whole)


def _read_touched_rows(pieces: Sequence[Piece], directory: str, increment: Increment) -> None:
    """Overwrites the rows that an increment holds, and marks them as touched.

    Args:
        pieces: Of the groups that it holds rows of.
        directory: Where it is.
        increment: Says where they are.

    Raises:
        Damage, UserError, tf.errors.OpError: As `_read_pieces`.
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
