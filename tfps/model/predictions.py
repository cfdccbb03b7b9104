"""A task's predictions by name."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.errors import UserError, reason_of
from tfps.experiment.task import Task

SINGLE = "predictions"  # the name of predictions that are a tensor


def predict_by_name(task: Task, outputs: Any) -> dict[str, tf.Tensor]:
    """The predictions for a batch.

    Returns:
        Tensors `[batch, ...]` float32 by name; a single one that bears no name is `SINGLE`.
    """
    try:
        found = task.predictions(outputs)
        several = found if isinstance(found, Mapping) else {SINGLE: found}
        cast = {name: tf.cast(value, tf.float32) for name, value in several.items()}
    except UserError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise UserError(
            f"predictions() of {type(task).__name__} fails: {reason_of(error)}"
        ) from error
    for name, value in cast.items():
        if value.shape.rank == 0:
            raise UserError(
                f"predictions() of {type(task).__name__}: {name} is a scalar; it must have one "
                "value per record"
            )
    return cast
