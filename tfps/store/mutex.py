"""A mutex on a ps."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Given what a change needs, makes it: returns a result, one tensor or several, and the operations
# that write.
Change = Callable[..., tuple[Any, Sequence[tf.Operation]]]


class Mutex:
    """Lets one change at a time be made of what a ps holds.

    A change takes the mutex once its arguments have arrived, so that nobody waits for the network
    while it is held. When a step fails meanwhile, TensorFlow frees the mutex with the step.
    """

    def __init__(self, name: str, device: str):
        self._device = device
        with tf.device(device):
            self._handle = tf.raw_ops.MutexV2(shared_name=f"{name}-{uuid.uuid4()}")

    def guard(self, change: Change) -> tf.types.experimental.PolymorphicFunction:
        """Makes a function of a change, traced under the ps's device, that holds the mutex."""
        # It is a function of its own: TensorFlow frees the mutexes of one function in the order of
        # the program, on whatever tasks they are. Two closures that take several of them as their
        # inputs arrive would wait for each other for ever. The result is there once all is written.

        def guarded(*arguments: Any) -> Any:
            with tf.device(self._device):
                arrived = [value for value in tf.nest.flatten(arguments) if tf.is_tensor(value)]
                with tf.control_dependencies(arrived):
                    lock = tf.raw_ops.MutexLock(mutex=self._handle)
                with tf.control_dependencies([lock]):
                    result, writes = change(*arguments)
                # Also what only reads has read by then.
                with tf.control_dependencies([*writes, *tf.nest.flatten(result)]):
                    tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                    return tf.nest.map_structure(tf.identity, result)

        return tf.function(guarded, autograph=False)
