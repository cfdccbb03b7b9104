"""The loss of a step, and its scale in float16."""

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError, reason_of
from tfps.experiment.task import Table, Task
from tfps.job_dir.report import OUTPUT_LOSS

_log = logging.getLogger(__name__)


class LossFunction:
    """The loss of a batch, from the task or from the model.

    A model gives the whole loss, as in `keras.Model.fit`, if it overrides `compute_loss`, or if it
    is compiled and the task has none: that of `compile`, and its own losses (regularizers,
    `add_loss`), which may be all of it. Otherwise it is the task's `compute_loss` plus the model's
    own losses.
    """

    def __init__(self, task: Task, model: keras.Model):
        for label in task.labels():
            if label.is_ragged:
                raise UserError(
                    f"label {label.name!r} has shape (None,), which features alone may have; give "
                    "it a fixed shape"
                )
        self._task = task
        self._model = model
        self._metrics = {id(metric) for metric in model.metrics}
        of_task = [name for name in ("loss", "compute_loss") if _overrides(task, name)]
        self._is_own = type(model).compute_loss is not keras.Model.compute_loss
        if self._is_own and of_task:
            raise UserError(
                f"{type(model).__name__} overrides compute_loss(), and {type(task).__name__} has "
                f"{of_task[0]}(): which is the loss? Leave one of them out"
            )
        is_compiled = model.compiled and getattr(model, "loss", None) is not None
        self._is_the_models = self._is_own or (model.compiled and not of_task)
        if is_compiled and of_task:
            _log.warning(
                "build_model() compiles the model with a loss; that of the task is used: leave out "
                "one of them"
            )
        owner = type(model) if self._is_the_models else type(task)
        self._name = f"{of_task[-1] if of_task else 'compute_loss'}() of {owner.__name__}"
        self._refuse_unused_weights()

    def __call__(
        self,
        features: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
        inputs: Any,
        outputs: Any,
        training: bool,
    ) -> tf.Tensor:
        """The loss of one batch, scalar float32; called in the scope of the model's call.

        Features and labels are `[batch, *shape]` by name.
        """
        try:
            loss = self._compute(features, labels, inputs, outputs, training)
        except UserError:
            raise
        except Exception as error:  # whatever the user's code raises
            weights = ""
            if self._is_own:
                weights = f", sample_weight {_shapes(self._weight(labels, training))}"
            raise UserError(
                f"{self._name} fails in {'training' if training else 'evaluation'} on labels "
                f"{_shapes(labels)} and outputs {_shapes(outputs)}{weights}: {reason_of(error)}"
            ) from error
        if loss.shape.rank != 0:
            raise UserError(
                f"{self._name} gives a tensor of shape {loss.shape}, not a scalar; take the mean "
                "over the batch (a Loss without reduction='none' does)"
            )
        own = [] if self._is_the_models else self._model.losses
        return tf.add_n([loss, *(tf.cast(tf.reduce_sum(each), tf.float32) for each in own)])

    @property
    def trackers(self) -> list[keras.metrics.Mean]:
        """The means that Keras keeps of the losses of several outputs, once they were computed."""
        return [
            metric
            for metric in self._model.metrics
            if id(metric) not in self._metrics
            and isinstance(metric, keras.metrics.Mean)
            and metric.name.endswith(OUTPUT_LOSS)
        ]

    def of_outputs(
        self,
        scope: keras.StatelessScope,
        features: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
        outputs: Any,
    ) -> dict[str, tf.Tensor]:
        """The losses of several outputs, without weights, by the names that `fit` gives them.

        Called after the loss, in whose scope `trackers` were empty.
        """
        task, names = self._task, [label.name for label in self._task.targets()]
        if self._is_the_models:
            means = self.trackers
            found = {each.name.removesuffix(OUTPUT_LOSS): _mean(scope, each) for each in means}
            if len(found) == len(names) and not isinstance(outputs, Mapping):
                found = dict(zip(names, found.values(), strict=True))
        elif not _overrides(task, "compute_loss") and isinstance(task.loss(), Mapping):
            found = task.losses_by_label(features, task.label_values(labels), outputs)
        else:
            found = {}
        if len(found) < 2:
            return {}
        return {name + OUTPUT_LOSS: tf.cast(value, tf.float32) for name, value in found.items()}

    def _compute(
        self,
        features: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
        inputs: Any,
        outputs: Any,
        training: bool,
    ) -> tf.Tensor:
        y = self._task.label_values(labels)
        weight = self._weight(labels, training)
        if not self._is_the_models:
            weights = {} if weight is None else {"sample_weight": weight}
            loss = self._task.compute_loss(features, y, outputs, **weights)
        else:
            weight = _ordered(weight, outputs)
            if not self._is_own:
                y = _ordered(self._task.truth(features, y), outputs)
            elif not self._task.targets():
                y = None  # as in `fit(x)`
            extra = {"training": training} if _takes(self._model.compute_loss, "training") else {}
            loss = self._model.compute_loss(inputs, y, outputs, weight, **extra)
        return tf.cast(loss, tf.float32)

    def _weight(self, labels: Mapping[str, tf.Tensor], training: bool) -> Any:
        """The factors of the records' parts; None for none.

        Evaluations are not weighted, except by a model that computes its loss itself: it may need
        the weights, and Keras's `evaluate` passes them, without class weights.
        """
        if not (training or self._is_own):
            return None
        try:
            weight = self._task.sample_weight(labels)
        except UserError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise UserError(
                f"sample_weight() of {type(self._task).__name__} fails on labels "
                f"{_shapes(labels)}: {reason_of(error)}"
            ) from error
        for each in weight.values() if isinstance(weight, Mapping) else (weight,):
            _refuse_no_weight(self._task, each)
        of_class = self._task.class_factor(labels) if training else None
        if weight is None or of_class is None:
            return of_class if weight is None else weight
        return of_class * tf.reshape(tf.cast(weight, tf.float32), [-1])

    def _refuse_unused_weights(self) -> None:
        task = self._task
        has_weights = task.weight() is not None or _overrides(task, "sample_weight")
        takes = self._is_the_models or _takes(task.compute_loss, "sample_weight")
        if has_weights and not takes:
            raise UserError(
                f"records have weights, but compute_loss() of {type(task).__name__} does not take "
                "them: give it an argument sample_weight=None"
            )


def _refuse_no_weight(task: Task, weight: Any) -> None:
    """Refuses what `sample_weight()` returns in place of a number for each record."""
    if weight is None:
        return
    is_tensor = tf.is_tensor(weight) or isinstance(weight, (np.ndarray, np.generic))
    dtype = tf.as_dtype(weight.dtype) if is_tensor else tf.string
    if not (dtype.is_floating or dtype.is_integer):
        raise UserError(
            f"{type(task).__name__}.sample_weight() returns {arguments.shown(weight)}; return a "
            "tensor with a number for each record, a dict of them by label, or None"
        )


def _mean(scope: keras.StatelessScope, metric: keras.metrics.Mean) -> tf.Tensor:
    total, count = (scope.get_current_value(variable) for variable in metric.variables)
    return tf.math.divide_no_nan(total, count)


def _ordered(labels: Any, outputs: Any) -> Any:
    """Labels by name in the order of unnamed outputs: Keras wants the outputs' structure."""
    if not isinstance(labels, Mapping) or isinstance(outputs, Mapping):
        return labels
    several = list(labels.values())
    return several if isinstance(outputs, (list, tuple)) else several[0]


def _takes(function: Callable, argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def _overrides(task: Task, name: str) -> bool:
    return getattr(type(task), name) is not getattr(Task, name)


def _shapes(values: Any) -> str:
    shapes = tf.nest.map_structure(
        lambda value: None if value is None else f"{value.dtype.name} {value.shape}", values
    )
    return str(shapes).replace("'", "")


@dataclasses.dataclass(frozen=True)
class LossScaling:
    """Settings of `keras.optimizers.LossScaleOptimizer`."""

    initial_scale: float
    growth_steps: int  # steps with finite gradients after which the scale is doubled


def loss_scaling(task: Task, model: keras.Model, tables: Sequence[Table]) -> LossScaling | None:
    """Whether and how the loss is scaled: as `keras.Model.compile` decides it.

    That is, if `optimizer()` is a `LossScaleOptimizer`, or by its defaults if the model's dtype
    policy is `mixed_float16`.
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
