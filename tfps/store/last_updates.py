"""When each row of a table was updated last, kept beside it on its ps."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.store.partitioned_variable import PartitionedVariable, TensorSlice
from tfps.store.row_layout import RowLayout


class LastUpdates:
    """For each row of a group, how many updates there had been after its last one; 0 for none yet.

    The numbers are int32 and may wrap around: a row's distance from the newest update is right as
    long as it is below 2^31. The methods are to be called under the device of the part's ps.
    """

    def __init__(self, layout: RowLayout, devices: Sequence[str]):
        def create(part: int) -> tf.Variable:
            first, end = layout.bounds(part)
            return layout.new_variable([end - first], tf.int32)

        name = f"{layout.name}/last_update"
        self._numbers = PartitionedVariable(
            name, (layout.total_rows,), layout.bounds, devices, create, {}
        )

    def read(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        """The numbers of rows of a part, by the rows' numbers within it, `[u]` int32."""
        return tf.raw_ops.ResourceGather(
            resource=self._numbers.parts[part].handle, indices=rows, dtype=tf.int32
        )

    def write(
        self, part: int, rows: tf.Tensor, before: tf.Tensor, updates: tf.Tensor
    ) -> tf.Operation:
        """Notes that rows of a part, `[u]`, were updated.

        Args:
            updates: How many updates there have been then, scalar int64. Rows that have seen a
                later one before keep its number.
        """
        later = tf.maximum(tf.cast(updates, tf.int32) - before, 0)
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._numbers.parts[part].handle, indices=rows, updates=before + later
        )

    def set(self, part: int, rows: tf.Tensor, updates: tf.Tensor) -> tf.Operation:
        """Notes when rows of a part, `[u]`, were updated, whatever was known of them before.

        Args:
            updates: How many updates there have been then, `[u]` int32.
        """
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._numbers.parts[part].handle, indices=rows, updates=updates
        )

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the numbers, a slice per ps."""
        return self._numbers.slices()


def missed_since(last: tf.Tensor, step: tf.Tensor) -> MissedUpdates:
    """What rows have missed.

    Args:
        last: What `LastUpdates.read` gave for them, `[u]`.
        step: Number of the update that comes next, scalar int64.
    """
    # An update that began later may have been made before this one.
    return MissedUpdates.of(tf.maximum(tf.cast(step, tf.int32) - last, 0), step)
