"""Reads the parameters of a checkpoint, a full one or an increment with its base."""

import posixpath
from collections.abc import Sequence

from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.damage import Damage
from tfps.store.partitioned_variable import Piece


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
        reader.read(pieces, checkpoint.path)
        return
    tables = [piece for piece in pieces if piece.name in increment.tensors]
    others = [piece for piece in pieces if piece.name not in increment.tensors]
    try:
        reader.read(tables, _base_path(checkpoint))
    except Damage as damage:
        raise _of_base(increment.base.name, damage) from None
    reader.read(others, checkpoint.path)
    reader.read_touched(tables, checkpoint.path, increment)


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
