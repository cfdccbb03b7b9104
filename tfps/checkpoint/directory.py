"""The checkpoints of a job: committed, damaged, unfinished and old ones."""

import contextlib
import dataclasses
import itertools
import logging
import posixpath
import re
from collections.abc import Mapping

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError, explain_failures
from tfps.errors import RunError, UserError
from tfps.evaluation.history import BestMetric, Evaluations
from tfps.job_dir import JobDir
from tfps.storage import files
from tfps.storage.failures import explain
from tfps.storage.paths import is_cloud

_NAME = re.compile(r"\d{12}-\d{6,}(-\d{12})?")
_ASIDE = re.compile(rf"{_NAME.pattern}\.damaged-\d+")
_log = logging.getLogger(__name__)


class CheckpointDirectory:
    """`JOB_DIR/checkpoints`: one directory per checkpoint, in the order of their names.

    A directory holds `parameters.*`, a TensorFlow checkpoint of logical tensors in slices, and
    `commit.json`, written last: without it, it is no checkpoint. A damaged one is kept under a name
    with `.damaged-1` or so at its end.
    """

    def __init__(self, job_dir: JobDir):
        self.path = job_dir.checkpoints

    def names(self) -> list[str]:
        return [posixpath.basename(path) for path in self.committed()]

    def committed(self) -> list[str]:
        """Paths of the committed checkpoints, oldest first."""
        return [path for path in self._directories(_NAME) if commit_marker.is_in(path)]

    @classmethod
    def committed_at(cls, path: str) -> list[str]:
        """Paths of the committed checkpoints that a path names, oldest first."""
        return [path] if commit_marker.is_in(path) else cls(JobDir(path)).committed()

    def latest(self) -> Checkpoint | None:
        committed = self.committed()
        return commit_marker.read(committed[-1]) if committed else None

    def newest_readable(self) -> Checkpoint | None:
        """The newest checkpoint whose marker is not damaged."""
        for path in reversed(self.committed()):
            with contextlib.suppress(DamagedCheckpointError, FileNotFoundError):
                return commit_marker.read(path)
        return None

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
        """Keeps a damaged checkpoint under a name that no checkpoint has."""
        names = (f"{path}.damaged-{number}" for number in itertools.count(1))
        target = next(name for name in names if not files.exists(name))
        _log.warning("keeping the damaged checkpoint %s as %s", path, target)
        with explain_failures(f"{path} cannot be renamed to {target}", "rename or delete it"):
            _move(path, target)

    def delete(self, path: str) -> None:
        # The marker first: a half-deleted directory must not look like a checkpoint.
        commit_marker.remove(path)
        files.remove_tree(path)

    def delete_unless_committed(self, path: str) -> bool:
        """Deletes a directory that is certainly no checkpoint; whether it was none."""
        if not commit_marker.forbid(path):
            return False
        _log.warning("deleting the unfinished checkpoint %s", path)
        files.remove_tree(path)
        return True

    def delete_uncommitted(self) -> None:
        """Deletes unfinished saves of earlier chiefs, which can commit nothing afterwards."""
        for path in self._directories(_NAME):
            self.delete_unless_committed(path)

    def _directories(self, names: re.Pattern[str]) -> list[str]:
        try:
            found = files.names(self.path)
        except FileNotFoundError:
            return []
        return [posixpath.join(self.path, name) for name in found if names.fullmatch(name)]


def no_checkpoint(where: str) -> UserError:
    return UserError(
        f"{where} holds no checkpoint; name a job's directory, or one in its checkpoints/ that has "
        "a commit.json"
    )


def _move(path: str, target: str) -> None:
    if not is_cloud(path):
        files.rename(path, target)
        files.sync([posixpath.dirname(path)])
        return
    # On gs:// only files have names. The marker is the first: what is half moved is no checkpoint.
    for name in files.names(path):
        files.rename(posixpath.join(path, name), posixpath.join(target, name))
    files.remove_tree(path)


@dataclasses.dataclass(frozen=True)
class Retention:
    """The rule by which old checkpoints are deleted."""

    # number of the newest that stay; if several, also the newest on another base: one damaged
    # file spoils not all
    last: int
    # hours between those that stay for good, from the first on; 0 for none
    hours: float = 0.0
    best: BestMetric | None = None  # the one with the best evaluation stays

    def stay(
        self,
        saved_at: Mapping[str, float],
        metrics: Mapping[str, Mapping[str, float]],
        bases: Mapping[str, str],
    ) -> set[str]:
        """The names that stay, with what they need; repeated, it misses none it kept before."""
        names = list(saved_at)
        found = set(names[-self.last :])
        if self.last > 1:
            found.update([name for name in names if bases[name] != bases[names[-1]]][-1:])
        if self.hours:
            last = None
            for name, time in saved_at.items():
                if last is None or time >= last + 3600.0 * self.hours:
                    found.add(name)
                    last = time
        best = self.best.best(list(metrics.values())) if self.best else None
        if best is not None:
            found.add(list(metrics)[best])
        return found | {bases[name] for name in found}


class OldCheckpoints:
    def __init__(
        self, directory: CheckpointDirectory, retention: Retention, evaluations: Evaluations
    ):
        self._directory = directory
        self._retention = retention
        self._evaluations = evaluations
        self._known: dict[str, Checkpoint] = {}  # by path

    def delete(self) -> None:
        found = self._readable()
        parent = self._directory.path
        saved_at = {path: checkpoint.saved_at for path, checkpoint in found.items()}
        bases = {path: posixpath.join(parent, x.base.name) for path, x in found.items()}
        evaluated = {
            posixpath.join(parent, each.checkpoint): each.metrics
            for each in self._evaluations.all()
        }
        metrics = {path: evaluated[path] for path in found if path in evaluated}
        stay = self._retention.stay(saved_at, metrics, bases)
        # The newest first: there is never an increment whose base is gone.
        for path in reversed([path for path in found if path not in stay]):
            self._directory.delete(path)
            del self._known[path]

    def _readable(self) -> dict[str, Checkpoint]:
        """Committed checkpoints with whole markers, oldest first; each is read once."""
        found: dict[str, Checkpoint] = {}
        for path in self._directory.committed():
            try:
                found[path] = self._known.get(path) or commit_marker.read(path)
            except FileNotFoundError as error:  # it was there a moment ago
                raise explain(error, "read", path) from None
            except DamagedCheckpointError as damage:
                _log.warning("checkpoint %s is damaged and is not deleted: %s", path, damage)
        self._known = dict(found)
        return found
