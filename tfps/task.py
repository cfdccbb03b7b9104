"""What a user brings: features, label, model, loss, optimizers, metrics."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from tfps import metrics
from tfps.errors import UserError
from tfps.feature import Feature
from tfps.rows import RowFormat
from tfps.table import Table

Metric = Callable[[np.ndarray, np.ndarray], Any]


class Task(abc.ABC):
    """The contract a user fills in, as a frozen dataclass whose fields flags can override.

    A functional model is called with tensors `[batch, *feature.shape]` for its inputs, which bear
    the features' names; any other model with a dict of them by name, or, when there is a single
    feature, with that tensor itself.
    """

    @abc.abstractmethod
    def features(self) -> tuple[Feature, ...]:
        """The model's inputs."""

    @abc.abstractmethod
    def label(self) -> Feature:
        """What the model learns."""

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """An ordinary Keras 3 model; its `keras.layers.Embedding` layers become tables."""

    @abc.abstractmethod
    def loss(self) -> keras.losses.Loss:
        """Loss of labels `[batch, *label.shape]` and the model's outputs, a mean over the batch."""

    @abc.abstractmethod
    def optimizer(self) -> keras.optimizers.Optimizer:
        """A Keras 3 optimizer for the dense parameters."""

    def table_optimizer(self, table: Table) -> keras.optimizers.Optimizer:
        """A Keras 3 optimizer for one table; the dense one unless overridden.

        Equal optimizers count as one: its tables of one dimension share a group, and
        `global_clipnorm` is over all that it updates.
        """
        return self.optimizer()

    def predictions(self, outputs: Any) -> Any:
        """What is served and measured, from the model's outputs (say, sigmoid of logits)."""
        return outputs

    def metrics(self) -> Mapping[str, Metric]:
        """Metrics by name: callables of all labels and all predictions of an evaluation.

        A fresh `keras.metrics.Metric` is such a callable.
        """
        return {"auc": metrics.auc, "accuracy": metrics.accuracy}

    def rows(self) -> RowFormat:
        """How a row of raw text becomes a record; needed by `trainer.prepare` and CSV prediction.

        Raises:
            UserError: If the task does not say.
        """
        raise UserError(
            f"{type(self).__name__} has no rows(): it cannot read CSV or TSV files; "
            "give it TFRecords"
        )
