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
# Of the table beside the hashes themselves, while it is filled too; seen were 53 for 10^7 keys.
BYTES_PER_KEY = 64
# Given hashes `[n]` int64, whether each is there `[n]`, and what is kept of their rows.
Gather = Callable[[tf.Tensor], tuple[tf.Tensor, Sequence[tf.Tensor]]]


class KeyPlaces:
    """The row of each key, by its hash.

    The SavedModel has the hashes alone, in the order of the rows: whoever loads it, with objects or
    as a graph, fills the table from them once they are restored.
    """

    def __init__(self, hashes: tf.Variable):
        """Knows what the variable has now, and in a loaded model what it has been restored to.

        Args:
            hashes: `[keys + 1]` int64 in their order; the last one, `NO_KEY`, stands for none.
        """
        self.table = tf.lookup.StaticHashTable(_NumbersOfRows(hashes), NOWHERE)

    def of(self, hashes: tf.Tensor) -> tf.Tensor:
        """The row of each, or `NOWHERE`, `[n]` int64."""
        return self.table.lookup(hashes)


class _NumbersOfRows(tf.lookup.KeyValueTensorInitializer):
    """Fills a table from a variable, which `KeyValueTensorInitializer` cannot: it takes constants.

    Those would stand in the graph, where two gigabytes end and no ps can write its own.
    """

    def __init__(self, hashes: tf.Variable):
        nothing = tf.zeros([0], tf.int64)
        super().__init__(nothing, nothing)
        self._hashes = hashes

    def initialize(self, table: tf.lookup.StaticHashTable) -> tf.Operation | None:
        """Fills the table."""
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
