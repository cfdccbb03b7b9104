"""What a step minimizes, and the scale of it in float16."""

import dataclasses
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import UserError
from tfps.experiment.task import Table, Task

_log = logging.getLogger(__name__)


class LossFunction:
    """The loss of a batch, from the task or from the model.

    A model that overrides `compute_loss` gives the whole loss, as in `keras.Model.fit`. Otherwise
    it is the task's `compute_loss` plus the model's own losses (regularizers, `add_loss`).
    """

    def __init__(self, task: Task, model: keras.Model):
        """Decides which of the two it is.

        Raises:
            UserError: If both the task and the model give the loss, or a label varies in length.
        """
        for label in task.labels():
            if label.is_ragged:
                raise UserError(
                    f"label {label.name!r} has shape (None,), which features alone may have; give "
                    "it a fixed shape"
                )
        self._task = task
        self._model = model
        self._is_the_models = type(model).compute_loss is not keras.Model.compute_loss
        of_task = [name for name in ("loss", "compute_loss") if _overrides(task, name)]
        if self._is_the_models and of_task:
            raise UserError(
                f"{type(model).__name__} overrides compute_loss(), and {type(task).__name__} has "
                f"{of_task[0]}(): which is the loss? Leave one of them out"
            )
        if model.compiled and not self._is_the_models:
            _log.warning(
                "build_model() compiles the model; the task's loss, optimizer and metrics are used"
            )
        owner = type(model) if self._is_the_models else type(task)
        self._name = f"{of_task[-1] if of_task else 'compute_loss'}() of {owner.__name__}"

    def __call__(
        self,
        features: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
        inputs: Any,
        outputs: Any,
        training: bool,
    ) -> tf.Tensor:
        """The loss of one batch, to be called in the scope that the model was called in.

        Args:
            features: By name, `[batch, *shape]`.
            labels: By name, `[batch, *shape]`.
            inputs: What the model was called with.
            outputs: What it returned.
            training: Whether it was called as in training.

        Returns:
            Scalar float32.

        Raises:
            UserError: If the user's function fails, or gives no scalar.
        """
        try:
            loss = self._compute(features, labels, inputs, outputs, training)
        except UserError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise UserError(
                f"{self._name} fails on labels {_shapes(labels)} and outputs {_shapes(outputs)}: "
                f"{' '.join(str(error).split())}"
            ) from error
        if loss.shape.rank != 0:
            raise UserError(
                f"{self._name} gives a tensor of shape {loss.shape}, not a scalar; take the mean "
                "over the batch (a Loss without reduction='none' does)"
            )
        own = [] if self._is_the_models else self._model.losses
        return tf.add_n([loss, *(tf.cast(tf.reduce_sum(each), tf.float32) for each in own)])

    def _compute(
        self,
        features: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
        inputs: Any,
        outputs: Any,
        training: bool,
    ) -> tf.Tensor:
        y = self._task.label_values(labels)
        if not self._is_the_models:
            return tf.cast(self._task.compute_loss(features, y, outputs), tf.float32)
        has_training = "training" in inspect.signature(self._model.compute_loss).parameters
        extra = {"training": training} if has_training else {}
        loss = self._model.compute_loss(inputs, y, outputs, None, **extra)
        return tf.cast(loss, tf.float32)


def _overrides(task: Task, name: str) -> bool:
    return getattr(type(task), name) is not getattr(Task, name)


def _shapes(values: Any) -> str:
    shapes = tf.nest.map_structure(lambda value: f"{value.dtype.name} {value.shape}", values)
    return str(shapes).replace("'", "")


@dataclasses.dataclass(frozen=True)
class LossScaling:
    """Settings of `keras.optimizers.LossScaleOptimizer`.

    Attributes:
        initial_scale: What the loss is multiplied by at first.
        growth_steps: Steps with finite gradients after which the scale is doubled.
    """

    initial_scale: float
    growth_steps: int


def loss_scaling(task: Task, model: keras.Model, tables: Sequence[Table]) -> LossScaling | None:
    """Whether and how the loss is scaled: as `keras.Model.compile` decides it.

    That is, if `optimizer()` is a `LossScaleOptimizer`, or by its defaults if the model's dtype
    policy is `mixed_float16`.

    Raises:
        UserError: If `table_optimizer()` asks for another scaling: there is one loss.
    """
    dense = _settings(task.optimizer())
    for table in tables:
        if _settings(task.table_optimizer(table)) not in (None, dense):
            raise UserError(
                f"table {table.name!r}: table_optimizer() is a LossScaleOptimizer, but the loss is "
                "scaled once, as optimizer() says: wrap the optimizer of optimizer() alone"
            )
    if dense is None and model.dtype_policy.name == "mixed_float16":
        return _settings(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    return dense


def _settings(optimizer: keras.optimizers.Optimizer) -> LossScaling | None:
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return None
    if not np.isfinite(optimizer.initial_scale) or optimizer.initial_scale <= 0:
        raise UserError(
            f"optimizer LossScaleOptimizer: initial_scale={optimizer.initial_scale} must be "
            "positive"
        )
    return LossScaling(float(optimizer.initial_scale), int(optimizer.dynamic_growth_steps))
