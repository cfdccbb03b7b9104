"""Rows in a worker's own memory, which the steps between a pull and a push change in place."""

import tensorflow as tf

# A variable of this name belongs to nobody else, and is freed when its handle is: each time the
# operation runs it makes another one (`ResourceHandle::ANONYMOUS_NAME` of TensorFlow's headers).
# `tf.Variable` uses it, but can be made outside of functions alone, so once for all executions:
# two closures of which a worker that was taken for lost runs both would share it.
_OF_NOBODY_ELSE = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


class LocalRows:
    """A variable that lives as long as the function's execution that has made it.

    A step changes some of many rows. As tensors all of them would be copied for it, and those that
    change be written by an operation for each (`tensor_scatter_nd_update`): of 20,000 rows of 32
    values, of which a step reads and writes 5,600, that took 0.50 ms of CPU, and takes 0.13.
    """

    def __init__(self, rows: tf.Tensor):
        """Takes up rows.

        Args:
            rows: `[n, size]` float32.
        """
        self._handle = tf.raw_ops.VarHandleOp(
            dtype=rows.dtype, shape=rows.shape, shared_name=_OF_NOBODY_ELSE
        )
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=rows)
        self._dtype = rows.dtype

    def read(self, numbers: tf.Tensor) -> tf.Tensor:
        """Some rows as they are now, `[u, size]`.

        Args:
            numbers: Which, `[u]`.
        """
        return tf.raw_ops.ResourceGather(resource=self._handle, indices=numbers, dtype=self._dtype)

    def write(self, numbers: tf.Tensor, rows: tf.Tensor) -> None:
        """Changes some rows.

        Args:
            numbers: Which, `[u]`, each once.
            rows: What they are from now, `[u, size]`.
        """
        tf.raw_ops.ResourceScatterUpdate(resource=self._handle, indices=numbers, updates=rows)

    def all(self) -> tf.Tensor:
        """All rows as they are now, `[n, size]`."""
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)
