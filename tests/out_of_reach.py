"""The smoke config with a model that only on a cluster uses what workers cannot reach."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from configs import smoke
from tfps.experiment.experiment import Experiment

# A process that becomes a chief leaves behind what it made before.
_BEFORE = tf.Variable(1.0)


class UsesVariable(keras.layers.Layer):
    """Does nothing until there are workers: no trial before the training can see what comes."""

    def call(self, inputs: Any) -> Any:
        """The inputs."""
        devices = tf.config.list_logical_devices()
        return inputs * _BEFORE if any("worker" in device.name for device in devices) else inputs


@dataclasses.dataclass(frozen=True)
class OutOfReach(smoke.Smoke):
    """As `Smoke`."""

    def build_model(self) -> keras.Model:
        """As `Smoke` makes it, and a layer."""
        model = super().build_model()
        return keras.Model(model.input, UsesVariable()(model.output))


def get_config() -> Experiment:
    """The experiment."""
    return dataclasses.replace(smoke.get_config(), task=OutOfReach())
