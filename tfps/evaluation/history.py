"""`JOB_DIR/evaluations`: the metrics of checkpoints, from the chief or the evaluator."""

import dataclasses
import json
import logging
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.storage import files

FORMAT = 1
_log = logging.getLogger(__name__)
_LOWER, _HIGHER = "min", "max"
# The metrics that tfps itself computes; `LABEL_auc` is the AUC of one of several labels.
_DIRECTIONS = {
    **dict.fromkeys(("loss", "mse", "mae", "log_loss", "normalized_entropy"), _LOWER),
    **dict.fromkeys(("auc", "accuracy"), _HIGHER),
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint."""

    checkpoint: str  # name of its directory; names sort in the order of training
    steps: int
    epoch: int
    records: int
    metrics: dict[str, float]
    seconds: float
    dataset: dict[str, Any]
    # The points of `ScoreCurves` by metric, such as `auc`, and curve.
    curves: dict[str, dict[str, list[list[float]]]] = dataclasses.field(default_factory=dict)

    @property
    def has_ended_epoch(self) -> bool:
        return int(self.checkpoint.rpartition("-")[2]) == 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())


class Evaluations:
    """A job's evaluations, one file each, named by the checkpoint.

    A file appears in one piece, and stays when its checkpoint is deleted. An empty or truncated
    one, as after a power cut, does not count: its checkpoint is not evaluated.
    """

    def __init__(self, job_dir: JobDir):
        self._path = job_dir.evaluations
        self._known: dict[str, Evaluation] = {}  # read or written before
        self._damaged: set[str] = set()  # reported before

    def write(self, evaluation: Evaluation) -> None:
        """Adds an evaluation, in place of one of the same checkpoint."""
        files.make_directories(self._path)
        data = {"format": FORMAT, **dataclasses.asdict(evaluation)}
        files.replace(self._file(evaluation.checkpoint), json.dumps(data, indent=1) + "\n")
        self._known[evaluation.checkpoint] = evaluation

    def checkpoints(self) -> list[str]:
        """Names of the evaluated checkpoints, in the order of training."""
        return [evaluation.checkpoint for evaluation in self.all()]

    def all(self) -> list[Evaluation]:
        """Every evaluation, in the order of training; each file is read once."""
        found = {name: self._known.get(name) or self._read(name) for name in self._files()}
        self._known = {name: evaluation for name, evaluation in found.items() if evaluation}
        return list(self._known.values())

    def newest_first(self) -> Iterator[Evaluation]:
        """Every evaluation, the last of the training first; a file is read when it is its turn."""
        return filter(None, map(self._read, reversed(self._files())))

    def delete(self, is_stale: Callable[[Evaluation], bool]) -> int:
        """Deletes stale evaluations; returns how many."""
        stale = [evaluation.checkpoint for evaluation in self.all() if is_stale(evaluation)]
        for checkpoint in stale:
            files.remove(self._file(checkpoint))
            del self._known[checkpoint]
        return len(stale)

    def _files(self) -> list[str]:
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
            if data["checkpoint"] != checkpoint:  # which names the file that `delete` removes
                raise ValueError(f"it is of checkpoint {data['checkpoint']!r}")
            return Evaluation(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is not an evaluation of this version ({error}); delete it"
            ) from None

    def _file(self, checkpoint: str) -> str:
        return posixpath.join(self._path, f"{checkpoint}.json")


@dataclasses.dataclass(frozen=True)
class BestMetric:
    """A metric by which evaluations are compared."""

    name: str
    is_higher_better: bool

    @classmethod
    def of(cls, setting: str, names: Sequence[str]) -> "BestMetric":
        """Reads `train.best_metric`: a metric's name, with `max:` or `min:` if it is not known."""
        where = f"train.best_metric={setting}"
        said, colon, rest = setting.partition(":")
        name = rest if colon else setting
        if name not in names:
            raise UserError(f"{where}: there is no metric {name!r}; use one of {', '.join(names)}")
        direction = said if colon else known_direction(name)
        if direction not in (_LOWER, _HIGHER):
            raise UserError(
                f"{where} does not say what is better; write max:{name} if a higher value is, "
                f"min:{name} if a lower one"
            )
        return cls(name, direction == _HIGHER)

    def best(self, evaluations: Sequence[Mapping[str, float]]) -> int | None:
        """Index of the best of some evaluations, the first of equals; None if none has a number."""
        scores = [self._score(metrics) for metrics in evaluations]
        highest = max(scores, default=-math.inf)
        return scores.index(highest) if math.isfinite(highest) else None

    def _score(self, metrics: Mapping[str, float]) -> float:
        value = metrics.get(self.name, math.nan)
        if not math.isfinite(value):
            return -math.inf
        return value if self.is_higher_better else -value


def known_direction(name: str) -> str:
    """`min` or `max` for a metric of tfps's own, also of one label; empty for others."""
    known = [each for each in _DIRECTIONS if name == each or name.endswith(f"_{each}")]
    return _DIRECTIONS[max(known, key=len)] if known else ""


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """The rule: stop when the best evaluation is `patience` evaluations old; 0 for never."""

    metric: BestMetric
    patience: int

    def reason(self, evaluations: Sequence[Evaluation]) -> str | None:
        """Why to stop, in words; None to continue."""
        best = self.metric.best([evaluation.metrics for evaluation in evaluations])
        since = len(evaluations) if best is None else len(evaluations) - 1 - best
        if not self.patience or since < self.patience:
            return None
        name = self.metric.name
        if best is None:
            return f"none of {since} evaluations has a number for {name}"
        found = evaluations[best]
        return (
            f"{name} has not become better than {found.metrics[name]:.4f} (epoch {found.epoch}, "
            f"{found.steps:,} steps) in {since} evaluations"
        )
