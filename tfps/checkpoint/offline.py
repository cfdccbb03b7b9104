"""The dense parameters of a checkpoint, without its tables, its model and a cluster."""

import math
import posixpath
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.checkpoint.damage import Damage
from tfps.checkpoint.named_checkpoint import named_checkpoint
from tfps.checkpoint.part_file import PREFIX
from tfps.cluster.failures import first_line
from tfps.errors import UserError


def dense_values(path: str) -> dict[str, np.ndarray]:
    """Reads a model's dense parameters and its state, such as BatchNorm statistics.

    For inspection; or in a task's `build_model()`, for a model that begins with what another has
    learnt, its tables new:

        values = dense_values("gs://bucket/job")
        for variable in model.variables:
            if variable.path in values:
                variable.assign(values[variable.path])

    Args:
        path: `JOB_DIR/checkpoints/NAME`, or `JOB_DIR` for the newest of the job.

    Returns:
        Values by the paths of their variables, float32.

    Raises:
        UserError: If there is no such checkpoint, or it is damaged or cannot be read.
    """
    checkpoint = named_checkpoint(path)
    found: dict[str, np.ndarray] = {}
    try:
        for file in checkpoint.files:
            file.check(checkpoint.path)
        for tensor in ("dense", "state"):
            if shapes := checkpoint.signature[tensor]:
                (flat,) = tf.raw_ops.RestoreV2(
                    prefix=posixpath.join(checkpoint.path, PREFIX),
                    tensor_names=[tensor],
                    shape_and_slices=[""],
                    dtypes=[tf.float32],
                )
                found |= _cut(flat.numpy(), shapes)
    except (Damage, tf.errors.DataLossError) as damage:
        why = damage if isinstance(damage, Damage) else first_line(damage)
        raise UserError(f"checkpoint {checkpoint.path} is damaged: {why}; name another") from None
    except tf.errors.OpError as error:
        said = first_line(error)
        raise UserError(f"checkpoint {checkpoint.path} cannot be read ({said})") from None
    return found


def _cut(flat: np.ndarray, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Variables, by path, that lie end to end."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = np.split(flat, ends[:-1])
    return {
        path: piece.reshape(shape)
        for piece, (path, shape) in zip(pieces, shapes.items(), strict=True)
    }
