"""A group of tables without vocabularies in an exported model: hashes of keys, and their rows."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfps.export.sliced_variables import RowEncoding, SlicedVariables, WrittenRun
from tfps.store.exchange import rows_for
from tfps.store.initializers import unknown_rows
from tfps.store.keyed_layout import KeyedLayout, hashes_of, hashes_of_array

NO_KEY = np.iinfo(np.int64).max  # the greatest hash
NOWHERE = -1
# Of the table without the hashes themselves, also while it is filled; measured: 53 at 10^7 keys.
BYTES_PER_KEY = 64
# Given hashes `[n]` int64, whether each is there `[n]`, and what is kept of their rows.
Gather = Callable[[tf.Tensor], tuple[tf.Tensor, Sequence[tf.Tensor]]]


def places_of(hashes: tf.Variable) -> tf.lookup.StaticHashTable:
    """The row of each key by its hash, else `NOWHERE`; int64.

    The SavedModel has the hashes alone, in the order of the rows; the loader, of objects or of a
    graph, fills the table from them after they are restored. They are `[keys + 1]` int64,
    ascending; the last one, `NO_KEY`, stands for none.
    """
    return tf.lookup.StaticHashTable(_NumbersOfRows(hashes), NOWHERE)


class _NumbersOfRows(tf.lookup.KeyValueTensorInitializer):
    """Fills a table from a variable; `KeyValueTensorInitializer` takes constants.

    Constants would be in the graph, which is limited to two gigabytes, and no ps could write its
    own.
    """

    def __init__(self, hashes: tf.Variable):
        nothing = tf.zeros([0], tf.int64)
        super().__init__(nothing, nothing)
        self._hashes = hashes

    def initialize(self, table: tf.lookup.StaticHashTable) -> tf.Operation | None:
        keys = tf.convert_to_tensor(self._hashes)[:-1]
        count = tf.size(keys, tf.int64)
        # TensorFlow fills no table with nothing; what stands for no key may be one's hash.
        end = tf.where(tf.reduce_any(keys == NO_KEY), count - 1, NOWHERE)
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle,
            keys=tf.concat([keys, [NO_KEY]], 0),
            values=tf.concat([tf.range(count), [end]], 0),
        )


class KeyedSlices(SlicedVariables):
    """The places of keys' rows in an exported model that has none of them yet.

    Each ps writes its own keys in the order of their hashes, and all ps together are in that order.
    The last row is no key's, so there is always one. The variables are hashes and rows, `[0]` and
    `[0, width]` here, and have all rows once they are restored.
    """

    def __init__(self, layout: KeyedLayout, encoding: RowEncoding, number: int):
        self._layout, self._encoding = layout, encoding
        self._tensors = encoding.tensors(layout.dim)
        self._unknown = unknown_rows(layout.tables)
        rows = [tf.TensorSpec([kept.width], kept.dtype) for kept in self._tensors]
        hashes = tf.TensorSpec([], tf.int64)
        super().__init__(layout.name, layout.tables, number, [hashes, *rows])
        self._places = places_of(self.variables[0])
        self.resources = [self._places]

    def look_up(self, table: str, ids: tf.Tensor, gather: Gather | None = None) -> tf.Tensor:
        """The rows of keys, `[*ids.shape, dim]` float32; of unknown ones what the table says.

        Rows come from `gather`, or else from the variables.
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
        """Writes hashes `[count]` int64 and rows `[count, dim]` as a slice; where the rows are."""
        values = [hashes, *self._encoding.encode(rows)]
        return self._write_run(prefix, first, values, total + 1)

    def write_end(self, prefix: str, total: int) -> WrittenRun:
        """Writes the row after the last key."""
        nothing = tf.zeros([1, self._layout.dim])
        return self.write(prefix, total, tf.constant([NO_KEY], tf.int64), nothing, total)

    def read(
        self, prefix: str, runs: Sequence[WrittenRun], lookups: Sequence[tuple[str, np.ndarray]]
    ) -> Gather:
        """Reads the rows of some lookups from the files, each run at most once."""
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
        places = self._places.lookup(hashes)
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
