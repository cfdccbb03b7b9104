"""How parameters and gradients travel between workers and ps."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Wire:
    """Casts values for their way over the network; both ends compute in float32.

    `send` must be called under the device that sends and `receive` under the one that receives, so
    that what lies between them, and travels, is the narrow value. In one process the values are
    cast all the same: a run has the same numbers with and without a cluster.

    Attributes:
        dtype: Of what travels: "float32" or "bfloat16".
    """

    dtype: str

    @property
    def value_bytes(self) -> int:
        """Bytes of one value on its way."""
        return int(tf.as_dtype(self.dtype).size)

    def send(self, value: tf.Tensor) -> tf.Tensor:
        """A float32 value as it travels, rounded to nearest."""
        return tf.cast(value, self.dtype)

    def receive(self, value: tf.Tensor) -> tf.Tensor:
        """What has arrived, float32, on the receiving device even where nothing is to be cast.

        What waits for it then waits there, and for no message of its own.
        """
        return tf.identity(tf.cast(value, tf.float32))


EXACT = Wire("float32")
