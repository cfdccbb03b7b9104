"""The checkpoints of a job: which there are, which are damaged, and which were never finished."""

import itertools
import logging
import posixpath
import re

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.failures import DamagedCheckpointError, explain_failures
from tfps.errors import RunError, UserError
from tfps.storage import files
from tfps.storage.paths import is_cloud

_NAME = re.compile(r"\d{12}-\d{6}(-\d{12})?")
_ASIDE = re.compile(rf"{_NAME.pattern}\.damaged-\d+")
_log = logging.getLogger(__name__)


class CheckpointDirectory:
    """`JOB_DIR/checkpoints`: one directory per checkpoint, in the order of their names.

    A directory holds `parameters.*`, a TensorFlow checkpoint of logical tensors in slices, and
    `commit.json`, written last. Without `commit.json` it is not a checkpoint, whatever it holds.
    One that was found damaged is kept under a name that ends in `.damaged-1` or so.
    """

    def __init__(self, job_dir: str):
        self.path = posixpath.join(job_dir, "checkpoints")

    def names(self) -> list[str]:
        """Names of the committed checkpoints, oldest first."""
        return [posixpath.basename(path) for path in self.committed()]

    def committed(self) -> list[str]:
        """Paths of the committed checkpoints, oldest first."""
        return [path for path in self._directories(_NAME) if commit_marker.is_in(path)]

    @classmethod
    def committed_at(cls, path: str) -> list[str]:
        """Paths of the committed checkpoints that are named, oldest first."""
        return [path] if commit_marker.is_in(path) else cls(path).committed()

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, None if there is none."""
        committed = self.committed()
        return commit_marker.read(committed[-1]) if committed else None

    def find(self, name: str) -> Checkpoint | None:
        """The committed checkpoint of that name; None if it is not there, or not any more."""
        path = posixpath.join(self.path, name)
        try:
            return commit_marker.read(path)
        except FileNotFoundError:
            return None
        except DamagedCheckpointError as damage:
            raise RunError(f"checkpoint {path} is damaged: {damage}; delete it") from None

    def damaged(self) -> list[str]:
        """Paths of the checkpoints that `set_aside` has kept, oldest first."""
        return self._directories(_ASIDE)

    def set_aside(self, path: str) -> None:
        """Keeps a damaged checkpoint under a name by which it is not taken for a checkpoint."""
        names = (f"{path}.damaged-{number}" for number in itertools.count(1))
        target = next(name for name in names if not files.exists(name))
        _log.warning("keeping the damaged checkpoint %s as %s", path, target)
        with explain_failures(f"{path} cannot be renamed to {target}", "rename or delete it"):
            _move(path, target)

    def delete(self, path: str) -> None:
        """Deletes a committed checkpoint."""
        # The marker first: a half-deleted directory must not look like a checkpoint.
        commit_marker.remove(path)
        files.remove_tree(path)

    def delete_unless_committed(self, path: str) -> bool:
        """Deletes a directory that is certainly no checkpoint.

        Returns:
            Whether it was none.
        """
        if not commit_marker.forbid(path):
            return False
        _log.warning("deleting the unfinished checkpoint %s", path)
        files.remove_tree(path)
        return True

    def delete_uncommitted(self) -> None:
        """Deletes what saves that were cut off left behind, of this job's earlier chiefs.

        None of them can commit anything once this returns. What may be committed is not deleted.
        """
        for path in self._directories(_NAME):
            self.delete_unless_committed(path)

    def _directories(self, names: re.Pattern[str]) -> list[str]:
        """Directories with such names, oldest checkpoint first."""
        try:
            found = files.names(self.path)
        except FileNotFoundError:
            return []
        return [posixpath.join(self.path, name) for name in found if names.fullmatch(name)]


def no_checkpoint(where: str) -> UserError:
    """The error of a path at which there is none."""
    return UserError(
        f"{where} holds no checkpoint; name a job's directory, or one in its checkpoints/ that has "
        "a commit.json"
    )


def _move(path: str, target: str) -> None:
    """Renames a checkpoint's directory."""
    if not is_cloud(path):
        files.rename(path, target)
        files.sync([posixpath.dirname(path)])
        return
    # On gs:// only files have names. The marker is the first: what is half moved is no checkpoint.
    for name in files.names(path):
        files.rename(posixpath.join(path, name), posixpath.join(target, name))
    files.remove_tree(path)
