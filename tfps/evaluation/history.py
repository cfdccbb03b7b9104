"""`JOB_DIR/evaluations`: what was measured of which checkpoint, by the chief or the evaluator."""

import dataclasses
import json
import logging
import posixpath
import re
from collections.abc import Callable
from typing import Any

from tfps.errors import UserError
from tfps.storage import atomic_file, files

FORMAT = 1
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint.

    Attributes:
        checkpoint: Name of its directory; names sort in the order of the training.
    """

    checkpoint: str
    steps: int
    epoch: int
    records: int
    metrics: dict[str, float]
    seconds: float
    dataset: dict[str, Any]

    @property
    def has_ended_epoch(self) -> bool:
        """Whether the checkpoint is the one at the end of an epoch."""
        return int(self.checkpoint.rpartition("-")[2]) == 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())


class Evaluations:
    """A job's evaluations, one file each, named by the checkpoint.

    A file appears in one piece, and stays when its checkpoint is deleted. One that is empty or cut
    off, as a power cut can leave it, is none: its checkpoint counts as not evaluated.
    """

    def __init__(self, job_dir: str):
        self._path = posixpath.join(job_dir, "evaluations")
        self._known: dict[str, Evaluation] = {}  # read or written before
        self._damaged: set[str] = set()  # that were told of

    def write(self, evaluation: Evaluation) -> None:
        """Adds an evaluation, in place of one of the same checkpoint."""
        files.make_directories(self._path)
        data = {"format": FORMAT, **dataclasses.asdict(evaluation)}
        atomic_file.write(self._file(evaluation.checkpoint), json.dumps(data, indent=1) + "\n")
        self._known[evaluation.checkpoint] = evaluation

    def checkpoints(self) -> list[str]:
        """Names of the checkpoints that have one, in the order of the training."""
        return [evaluation.checkpoint for evaluation in self.all()]

    def all(self) -> list[Evaluation]:
        """Every evaluation, in the order of the training; each file is read once."""
        found = {name: self._known.get(name) or self._read(name) for name in self._files()}
        self._known = {name: evaluation for name, evaluation in found.items() if evaluation}
        return list(self._known.values())

    def forget(self, is_stale: Callable[[Evaluation], bool]) -> int:
        """Deletes evaluations."""
        stale = [evaluation.checkpoint for evaluation in self.all() if is_stale(evaluation)]
        for checkpoint in stale:
            files.remove(self._file(checkpoint))
            del self._known[checkpoint]
        return len(stale)

    def _files(self) -> list[str]:
        """Names of the checkpoints that have a file, in the order of the training."""
        try:
            names = files.names(self._path)
        except FileNotFoundError:
            return []
        found = [re.fullmatch(r"(.+)\.json", name) for name in names]
        return sorted(match[1] for match in found if match)

    def _read(self, checkpoint: str) -> Evaluation | None:
        """The evaluation of a checkpoint; None if the file is damaged, or was just deleted."""
        path = self._file(checkpoint)
        try:
            data = json.loads(files.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            if checkpoint not in self._damaged:
                self._damaged.add(checkpoint)
                _log.warning("%s is empty or damaged and counts as none: %s", path, error)
            return None
        try:
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            if data["checkpoint"] != checkpoint:  # which names the file that `forget` deletes
                raise ValueError(f"it is of checkpoint {data['checkpoint']!r}")
            return Evaluation(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is not an evaluation of this version ({error}); delete it"
            ) from None

    def _file(self, checkpoint: str) -> str:
        return posixpath.join(self._path, f"{checkpoint}.json")
