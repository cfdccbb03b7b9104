"""Which checkpoints stay, and how the others are deleted."""

import dataclasses
import logging
import posixpath
from collections.abc import Mapping

from tfps.checkpoint import commit_marker
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.evaluation.best import BestMetric
from tfps.evaluation.history import Evaluations
from tfps.storage.failures import explain

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Retention:
    """The rule by which old checkpoints are deleted.

    Attributes:
        last: So many of the newest stay; if more than one, also the newest that does not need the
            same full checkpoint as they do, so that one damaged file does not spoil all.
        hours: The first stays for good, and after it one whenever so many hours have passed; 0 for
            none.
        best: The one with the best evaluation by this metric stays; None for none.
    """

    last: int
    hours: float = 0.0
    best: BestMetric | None = None

    def stay(
        self,
        saved_at: Mapping[str, float],
        metrics: Mapping[str, Mapping[str, float]],
        bases: Mapping[str, str],
    ) -> set[str]:
        """The checkpoints that stay; applied again and again, it never misses one it kept before.

        What one that stays needs stays too.

        Args:
            saved_at: For every checkpoint, oldest first, when it was saved, in seconds.
            bases: For every checkpoint, the full one that it needs; itself if it is one.
        """
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
    """Deletes the checkpoints of a job that need not stay."""

    def __init__(
        self, directory: CheckpointDirectory, retention: Retention, evaluations: Evaluations
    ):
        self._directory = directory
        self._retention = retention
        self._evaluations = evaluations
        self._known: dict[str, Checkpoint] = {}  # by path

    def delete(self) -> None:
        """Deletes those that do not stay by what is known now."""
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
        """Committed checkpoints whose markers are whole, oldest first; each is read once."""
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
