"""Whether a run scales its loss, and how."""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from tfps.errors import UserError
from tfps.experiment.table import Table
from tfps.experiment.task import Task


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
