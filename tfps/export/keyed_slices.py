"""A group of tables without vocabularies in an exported model: hashes of keys, and their rows."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfps.export.key_places import NO_KEY, NOWHERE, KeyPlaces
from tfps.export.row_encoding import RowEncoding
from tfps.export.sliced_variables import SlicedVariables, WrittenRun
from tfps.store.keyed.hashing import hashes_of, hashes_of_array
from tfps.store.keyed.initial_rows import unknown_rows
from tfps.store.keyed.layout import KeyedLayout
from tfps.store.lookups import rows_for

# Given hashes `[n]` int64, whether each is there `[n]`, and what is kept of their rows.
Gather = Callable[[tf.Tensor], tuple[tf.Tensor, Sequence[tf.Tensor]]]


class KeyedSlices(SlicedVariables):
    """Where rows of keys are in an exported model, which has none of them yet.

    Each ps writes its own keys in the order of their hashes, and all ps together are in that order.
    Behind the last key stands one that is none, so that there is always a row.

    Attributes:
        variables: Of the SavedModel: the hashes, `[0]` here, and what is kept of the rows, `[0,
            width]`; restored, they have a row for each key and one behind the last.
    """

    def __init__(self, layout: KeyedLayout, encoding: RowEncoding, number: int):
        """Makes variables without rows.

        Args:
            layout: The group's; on how many ps it lies does not matter.
        """
        self._layout, self._encoding = layout, encoding
        self._tensors = encoding.tensors(layout.dim)
        self._unknown = unknown_rows(layout.tables)
        rows = [tf.TensorSpec([kept.width], kept.dtype) for kept in self._tensors]
        hashes = tf.TensorSpec([], tf.int64)
        super().__init__(layout.name, layout.tables, number, [hashes, *rows])
        self._places = KeyPlaces(self.variables[0])
        self.resources = [self._places.table]

    def look_up(self, table: str, ids: tf.Tensor, gather: Gather | None = None) -> tf.Tensor:
        """The rows of keys, `[*ids.shape, dim]` float32; of unknown ones what the table says.

        Args:
            ids: Keys of any shape, int32 or int64.
            gather: Where rows are taken from; None for the variables.
        """
        member = self.tables.index(table)
        salt = tf.constant(self._layout.salts[member], tf.uint64)
        hashes = hashes_of(tf.reshape(tf.cast(ids, tf.int64), [-1]), salt)
        is_known, kept = (gather or self._gather)(hashes)
        known = self._encoding.decode(kept)
        rows = tf.where(is_known[:, tf.newaxis], known, self._unknown[member])
        return rows_for(ids, rows, self._layout.dim)

    def write(
        self, prefix: str, first: int, hashes: tf.Tensor, rows: tf.Tensor, total: int
    ) -> WrittenRun:
        """Writes a run of rows as a slice of the variables; to be called where the rows are.

        Args:
            hashes: Of the keys, `[count]` int64.
            rows: Theirs, `[count, dim]` float32.
        """
        values = [hashes, *self._encoding.encode(rows)]
        return self._write_run(prefix, first, values, total + 1)

    def write_end(self, prefix: str, total: int) -> WrittenRun:
        """Writes what stands behind the last key."""
        nothing = tf.zeros([1, self._layout.dim])
        return self.write(prefix, total, tf.constant([NO_KEY], tf.int64), nothing, total)

    def read(
        self, prefix: str, runs: Sequence[WrittenRun], lookups: Sequence[tuple[str, np.ndarray]]
    ) -> Gather:
        """Reads the rows of some lookups out of what was written, each run once at most."""
        salts = dict(zip(self.tables, self._layout.salts, strict=True))
        asked = [hashes_of_array(ids.ravel().astype(np.int64), salts[k]) for k, ids in lookups]
        wanted = np.unique(np.concatenate([np.zeros([0], np.int64), *asked]))
        total = max(run.first + run.count for run in runs)
        found: list[list[np.ndarray]] = [[] for _ in self.variables]
        for run in sorted(runs, key=lambda run: run.first):
            if run.first == total - 1:  # behind the last key
                continue
            written = self._read_run(prefix, run, total)
            mine = np.flatnonzero(np.isin(written[0].numpy(), wanted))
            for piece, values in zip(found, written, strict=True):
                piece.append(tf.gather(values, mine))
        ends = [[NO_KEY], *(tf.zeros([1, kept.width], kept.dtype) for kept in self._tensors)]
        joined = [tf.concat([*piece, end], 0) for piece, end in zip(found, ends, strict=True)]
        return lambda hashes: _searched(joined, hashes)

    def _gather(self, hashes: tf.Tensor) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        places = self._places.of(hashes)
        _, *rows = self.variables
        return places != NOWHERE, [tf.gather(each, tf.maximum(places, 0)) for each in rows]


def _searched(
    kept: Sequence[tf.Tensor], hashes: tf.Tensor
) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    """Whether hashes are there, and what is kept of their rows."""
    sorted_hashes, *rows = kept
    places = tf.searchsorted(sorted_hashes, hashes, out_type=tf.int64)
    is_key = places < tf.size(sorted_hashes, tf.int64) - 1
    is_known = is_key & tf.equal(tf.gather(sorted_hashes, places), hashes)
    return is_known, [tf.gather(each, places) for each in rows]
