"""The checkpoint that a path names."""

import posixpath

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.damage import Damage
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.retention import Retention
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
            names = CheckpointDirectory(directory, Retention(last=1)).names()
            if not names:
                raise UserError(
                    f"{path} holds no checkpoint; name a job's directory, or one in its "
                    "checkpoints/ that has a commit.json"
                )
            directory = posixpath.join(directory, "checkpoints", names[-1])
        return commit_marker.read(directory)
    except FileNotFoundError:
        raise UserError(f"checkpoint {directory} was deleted meanwhile; name another") from None
    except Damage as damage:
        raise UserError(f"checkpoint {directory} is damaged: {damage}; name another") from None
