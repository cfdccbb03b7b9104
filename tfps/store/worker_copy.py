"""Values that never change, kept in the memory of each worker that has asked for them."""

import uuid
from collections.abc import Callable

import tensorflow as tf

_HERE = "/device:CPU:0"  # of the task that runs the closure


class WorkerCopy:
    """A float32 tensor that the first closure on a worker fetches, and later ones find there.

    It lies in a variable of the worker's own, known by a name: a closure's graph is the same on all
    workers. A worker that begins again, or is connected to again, has none and fetches it again.
    """

    def __init__(self, fetch: Callable[[], tf.Tensor], count: int):
        """Nobody has it yet.

        Args:
            fetch: In a closure, reads the values where they are, `[count]`.
        """
        self._fetch = fetch
        self._shape = [count]
        self._name = f"tfps_{uuid.uuid4().hex}"  # another store's values are others

    def value(self) -> tf.Tensor:
        """In a closure, outside of its loops: the values, `[count]`."""
        with tf.device(_HERE):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=self._shape, shared_name=self._name
            )
            is_here = tf.raw_ops.VarIsInitializedOp(resource=handle)

        def find() -> tf.Tensor:
            with tf.device(_HERE):
                return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        def fetch() -> tf.Tensor:
            fetched = self._fetch()
            with tf.device(_HERE):
                value = tf.identity(fetched)
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)
                return value

        return tf.ensure_shape(tf.cond(is_here, find, fetch), self._shape)
