"""How many updates came between a batch's pull and its push."""

import tensorflow as tf

from tfps.job_dir.report_fields import StalenessCounts

BINS = 64


class Staleness:
    """Counts the updates of one ps by their staleness, on that ps.

    A batch's staleness is the number of other updates that were applied after its parameters were
    pulled and before its own gradients were pushed: those of other workers, and the worker's own
    where it pulls ahead.
    """

    def __init__(self, part: int, device: str):
        self.part = part
        self._device = device
        with tf.device(device):
            self._counts = tf.Variable(tf.zeros([BINS], tf.int64), trainable=False)

    def count(self, pulled_at: tf.Tensor, pushed_at: tf.Tensor) -> None:
        """Counts one update.

        Args:
            pulled_at: Number of updates when its parameters were pulled, scalar int64.
            pushed_at: Number of updates before it, scalar int64.
        """
        with tf.device(self._device):
            staleness = tf.minimum(pushed_at - pulled_at, BINS - 1)
            one = tf.ones([], tf.int64)
            self._counts.scatter_add(tf.IndexedSlices(one, staleness))

    def report(self) -> StalenessCounts:
        """Mean and histogram, on the chief.

        `histogram[k]` updates had the staleness k; the last bin that there can be, number 63, also
        holds all greater ones.
        """
        counts = [int(count) for count in self._counts.numpy()]
        updates = sum(counts)
        mean = sum(k * count for k, count in enumerate(counts)) / updates if updates else 0.0
        used = max((k for k, count in enumerate(counts) if count), default=-1) + 1
        return StalenessCounts(round(mean, 3), counts[:used])


def rate_scale(staleness: tf.Tensor, power: float) -> tf.Tensor:
    """What the learning rate of an update is multiplied by, scalar float32.

    Args:
        staleness: The update's, scalar int64.
    """
    return tf.pow(1.0 + tf.cast(staleness, tf.float32), -power)
