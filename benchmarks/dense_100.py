"""A tfps config: the benchmarks' model of many small variables, on generated numbers."""

import dataclasses
from typing import Any

import keras

from benchmarks import models
from tfps.data.feature import Feature
from tfps.experiment.experiment import Experiment, Train
from tfps.experiment.task import Task


@dataclasses.dataclass(frozen=True)
class Dense100(Task):
    """Numbers, a label, and 100 layers in between."""

    def features(self) -> tuple[Feature, ...]:
        """32 numbers."""
        return (Feature("numbers", "float32", (models.DENSE_NUMBERS,)),)

    def label(self) -> Feature:
        """0 or 1."""
        return Feature("label", "int64", vocabulary=2)

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        return models.dense_100(keras, rows=0)

    def loss(self) -> keras.losses.Loss:
        """Binary cross-entropy of logits."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adagrad."""
        return keras.optimizers.Adagrad(models.LEARNING_RATES["dense_100"])

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]`."""
        return keras.ops.sigmoid(keras.ops.reshape(outputs, (-1,)))


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("dense_100", Dense100(), train=Train(batch_size=512, epochs=1))
