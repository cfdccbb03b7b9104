"""Keeps a run where experiments are compared: MLflow, Vertex Experiments, Weights & Biases."""

import json
import logging
import posixpath
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.job_dir.report import FINISHED
from tfps.monitoring.events import (
    EpochTrained,
    Evaluated,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
)
from tfps.storage import files
from tfps.storage.failures import StorageError

_MOST_POINTS = 10_000  # that are kept while a service does not answer
_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A service that keeps runs. Its methods raise what its own library does."""

    @property
    def name(self) -> str:
        """What people call it."""

    def connect(self, experiment: str, title: str, known: str | None) -> str:
        """Begins or resumes a run; `known` is the service's name of it, None for a new one.

        Runs of one `experiment` are compared, where nothing else is set.
        """

    def describe(self, settings: Mapping[str, str]) -> None:
        """Records what was set for the run; some may come again, with other values."""

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        """Adds figures; `at` in seconds since 1970."""

    def end(self, has_finished: bool) -> None:
        """Ends the run, which resumes where it is connected to again."""


class TrackedRun:
    """Reports to a tracker what happens in a run.

    A job is one run of the service, also where it resumes: its name there is kept in
    JOB_DIR/trackers.
    """

    def __init__(self, tracker: Tracker, job_dir: JobDir, experiment: str):
        self.name = f"what {tracker.name} shows"
        self._tracker = tracker
        self._waiting: deque[Callable[[], None]] = deque()
        self._left_out = 0
        self._has_ended = False
        path = posixpath.join(job_dir.trackers, f"{tracker.name}.json")
        known = _known(path)
        title = job_dir.name or experiment
        try:
            run = tracker.connect(experiment, title, known)
        except Exception as error:  # whatever its library raises
            raise UserError(
                f"--track={tracker.name} cannot be used ({_said(error)}); see "
                "docs/monitoring.md for what it needs, or leave the flag out"
            ) from None
        if run != known:
            files.make_directories(job_dir.trackers)
            files.replace(path, json.dumps({"run": run}) + "\n")
        _log.info("%s keeps this run as %s", tracker.name, run)

    def tell(self, event: RunEvent) -> None:
        """Takes what happened; not all that happens is kept."""
        match event:
            case RunBegan():
                tasks = {"mode": event.mode, "workers": str(event.workers), "ps": str(event.ps)}
                settings = {**event.settings, **tasks}
                self._waiting.append(lambda: self._tracker.describe(settings))
            case RunEnded():
                self._has_ended = True
                self._waiting.append(lambda: self._tracker.end(event.status == FINISHED))
            case Sampled() | EpochTrained() | Evaluated():
                self._add(event.steps, event.at, _figures(event))

    def flush(self) -> None:
        has_taken_next = False  # so that the first is refused for what it is
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:  # whatever the service's library raises
                if not has_taken_next:
                    if not self._takes_next():
                        raise StorageError(_said(error), may_pass=True) from None
                    has_taken_next = True
                    continue
                _log.warning("%s refuses an entry: %s", self._tracker.name, _said(error))
            has_taken_next = False
            self._waiting.popleft()
        if self._left_out:
            _log.warning(
                "%s lacks %d points: it did not answer for too long",
                self._tracker.name,
                self._left_out,
            )
            self._left_out = 0

    def _takes_next(self) -> bool:
        """Whether there is a second entry, which is taken; the end of a run remains the last."""
        if len(self._waiting) == 1 + self._has_ended:
            return False
        try:
            self._waiting[1]()
        except Exception:  # whatever the service's library raises
            return False
        del self._waiting[1]
        return True

    def _add(self, step: int, at: float, values: Mapping[str, float]) -> None:
        if len(self._waiting) >= _MOST_POINTS:
            self._left_out += 1
        else:
            self._waiting.append(lambda: self._tracker.log(step, at, values))


def _figures(event: Sampled | EpochTrained | Evaluated) -> dict[str, float]:
    match event:
        case Sampled():
            found = {
                "examples": float(event.examples),
                "examples_per_second": event.examples_per_second,
                "loss": event.loss,
                **{f"progressive/{name}": value for name, value in event.judged.items()},
            }
        case EpochTrained():
            found = {
                "epoch": event.epoch + 1.0,
                "epoch_loss": event.loss,
                "learning_rate": event.learning_rate,
            }
        case Evaluated():
            return {f"evaluation/{name}": value for name, value in event.metrics.items()}
    return {name: value for name, value in found.items() if value is not None}


def _said(error: Exception) -> str:
    """What a service's library has raised, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _known(path: str) -> str | None:
    """The service's name of the job's run; None for a new job."""
    try:
        run = json.loads(files.read(path))["run"]
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it for a new run") from None
    return str(run)
