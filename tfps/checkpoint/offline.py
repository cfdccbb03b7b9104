"""The dense parameters of a checkpoint, without its tables, its model and a cluster."""

import math
import posixpath
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import PREFIX, Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.cluster.failures import first_line
from tfps.errors import UserError


def named_checkpoint(path: str) -> Checkpoint:
    """Finds a committed checkpoint; whether its files are whole shows when they are read.

    Args:
        path: `JOB_DIR/checkpoints/NAME`, or `JOB_DIR` for the newest of the job.

    Raises:
        UserError: If there is none, its commit marker is damaged, or another version of tfps wrote
            it.
        StorageError: If the storage does not answer.
    """
    directory = path.rstrip("/")
    try:
        if not commit_marker.is_in(directory):
            names = CheckpointDirectory(directory).names()
            if not names:
                raise UserError(
                    f"{path} holds no checkpoint; name a job's directory, or one in its "
                    "checkpoints/ that has a commit.json"
                )
            directory = posixpath.join(directory, "checkpoints", names[-1])
        return commit_marker.read(directory)
    except FileNotFoundError:
        raise UserError(f"checkpoint {directory} was deleted meanwhile; name another") from None
    except DamagedCheckpointError as damage:
        raise UserError(f"checkpoint {directory} is damaged: {damage}; name another") from None


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
    except (DamagedCheckpointError, tf.errors.DataLossError) as damage:
        why = damage if isinstance(damage, DamagedCheckpointError) else first_line(damage)
        raise UserError(f"checkpoint {checkpoint.path} is damaged: {why}; name another") from None
    except tf.errors.OpError as error:
        said = first_line(error)
        raise UserError(f"checkpoint {checkpoint.path} cannot be read ({said})") from None
    return found


def _cut(flat: np.ndarray, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Variables, by path, that lie end to end."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    slices = np.split(flat, ends[:-1])
    return {
        path: slice_.reshape(shape)
        for slice_, (path, shape) in zip(slices, shapes.items(), strict=True)
    }
