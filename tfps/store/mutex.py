"""A mutex on a ps."""

import uuid
from collections.abc import Sequence

import tensorflow as tf


class Mutex:
    """Lets one push at a time change what a ps holds.

    A push takes it once its inputs have arrived, so that nobody waits for the network while it is
    held. When a step fails between the two calls, TensorFlow frees the mutex with the step.
    """

    def __init__(self, name: str, device: str):
        """Creates it on a ps; the name is for people, every mutex is another."""
        with tf.device(device):
            self._handle = tf.raw_ops.MutexV2(shared_name=f"{name}-{uuid.uuid4()}")

    def lock(self, arrived: Sequence[tf.Tensor]) -> tf.Tensor:
        """Takes the mutex; what needs it must depend on the result.

        Args:
            arrived: What to wait for before, on the ps of the mutex.
        """
        with tf.control_dependencies(arrived):
            return tf.raw_ops.MutexLock(mutex=self._handle)

    def release(self, lock: tf.Tensor, writes: Sequence[tf.Operation]) -> None:
        """Frees the mutex after the writes."""
        with tf.control_dependencies(writes):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
