"""Where the rows of keys are in a served model: TensorFlow's hash table, filled as it is loaded."""

import numpy as np
import tensorflow as tf

NO_KEY = np.iinfo(np.int64).max  # the greatest hash
NOWHERE = -1
# Of the table beside the hashes themselves, while it is filled too; seen were 53 for 10^7 keys.
BYTES_PER_KEY = 64


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
