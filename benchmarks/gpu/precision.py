"""Models of configs at a precision that is a field."""

import contextlib
import dataclasses
from collections.abc import Iterator

import keras

from tfps.experiment.task import Task


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Gives the layers that are built meanwhile a policy of Keras.

    Args:
        name: float32, mixed_float16 or mixed_bfloat16.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@dataclasses.dataclass(frozen=True)
class PreciseTask(Task):
    """Builds the model of the task that stands behind it among a class's bases.

    Attributes:
        precision: Keras's policy of every layer.
    """

    precision: str = "float32"

    def build_model(self) -> keras.Model:
        """That task's model."""
        with policy(self.precision):
            return super().build_model()
