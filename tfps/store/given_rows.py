"""Rows that a table begins with, out of files of ids, or keys, and vectors."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfps.data.key_rows import KEY, KeyRows
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import string_keys
from tfps.store.partitioned_variable import CHUNK_BYTES


def given_rows(table: Table) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows that a table's files name, about 48 MiB at a time.

    It keeps the ids of those that it has given, 8 bytes each.

    Yields:
        Ids, or keys of a table without a vocabulary, `[n]` int64, and their rows `[n, dim]`
        float32. All of them are different.
    """
    seen = np.zeros([0], np.int64)
    for pieces in _chunks(table):
        keys = [_ids(table, piece) for piece in pieces]
        together = np.concatenate(keys)
        distinct, first = np.unique(together, return_index=True)
        is_first = np.zeros([len(together)], np.bool_)
        is_first[first] = True
        again = np.flatnonzero(~is_first | np.isin(together, seen, assume_unique=False))
        if len(again):
            raise UserError(f"table {table.name!r}: {_where(pieces, int(again[0]))} came before")
        seen = np.union1d(seen, distinct)
        yield together, np.concatenate([piece.vectors for piece in pieces])


def _chunks(table: Table) -> Iterator[list[KeyRows]]:
    assert table.rows_from
    chunk: list[KeyRows] = []
    for piece in table.rows_from.read():
        chunk.append(piece)
        if sum(each.vectors.nbytes for each in chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _ids(table: Table, piece: KeyRows) -> np.ndarray:
    """What the table knows the keys of some rows by, `[n]` int64."""
    if piece.keys.dtype == object:
        return np.asarray(string_keys(tf.constant(piece.keys)).numpy())
    ids = piece.keys.astype(np.int64)
    outside = np.flatnonzero((ids < 0) | (ids >= table.rows))
    if not table.keys and len(outside):
        raise UserError(
            f"table {table.name!r}: {_where([piece], int(outside[0]))} is no id of the table, "
            f"which are 0 to {table.rows - 1:,}"
        )
    return ids


def _where(pieces: list[KeyRows], index: int) -> str:
    """Names a row of some pieces, and its key."""
    for piece in pieces:
        if index < len(piece.keys):
            [key] = piece.keys[index : index + 1].tolist()
            return f"{piece.where(index)}: {KEY} {key!r}"
        index -= len(piece.keys)
    raise IndexError(index)
