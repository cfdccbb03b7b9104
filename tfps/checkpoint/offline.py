"""The dense parameters of a checkpoint, without its tables, its model and a cluster."""

import numpy as np
import tensorflow as tf

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory, no_checkpoint
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.checkpoint.saved_values import read_variables
from tfps.cluster.failures import first_line
from tfps.errors import UserError


def named_checkpoint(path: str) -> Checkpoint:
    """Finds a committed checkpoint; whether its files are whole shows when they are read."""
    directory = path.rstrip("/")
    try:
        found = CheckpointDirectory.committed_at(directory)
        if not found:
            raise no_checkpoint(path)
        directory = found[-1]
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

    Returns:
        Values by the paths of their variables, float32.
    """
    checkpoint = named_checkpoint(path)
    try:
        for file in checkpoint.files:
            file.check(checkpoint.path)
        return read_variables(checkpoint)
    except DamagedCheckpointError as damage:
        raise UserError(
            f"checkpoint {checkpoint.path} is damaged: {damage}; name another"
        ) from None
    except tf.errors.OpError as error:
        said = first_line(error)
        raise UserError(f"checkpoint {checkpoint.path} cannot be read ({said})") from None
