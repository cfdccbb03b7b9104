"""How a run is watched: where what happens is kept."""

import dataclasses
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tfps.cluster.sockets import Traffic
from tfps.cluster.spec import Cluster
from tfps.data.followed_data import RunData
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring import recorder
from tfps.monitoring.events import RunBegan, RunEvent, TasksMeasured
from tfps.monitoring.recorder import RunHistory, RunRecorder, Watcher
from tfps.monitoring.tensorboard import TensorBoardLog
from tfps.monitoring.tracker import TrackedRun, Tracker
from tfps.planner import bound_text
from tfps.planner.measured_run import MeasuredRun, TooShortError
from tfps.storage.failures import StorageError
from trainer.chief.observer import SAMPLE_SECONDS, RunObserver, StatusBoard
from trainer.chief.run_inputs import RunSettings
from trainer.page.page import RunPage

TRACKERS = {  # classes by name
    "mlflow": "MlflowTracker",
    "vertex": "VertexTracker",
    "wandb": "WandbTracker",
}
_READ_AT_ONCE = 16
_log = logging.getLogger(__name__)


class TaskUsages:
    def __init__(self, job_dir: JobDir, cluster: Cluster):
        self._job_dir = job_dir
        self._own = str(cluster.task)
        self._traffic = None if cluster.is_local else Traffic(cluster.addresses()).count
        others = [] if cluster.is_local else list(cluster.peers())
        others += [TaskName("evaluator", index) for index in range(len(cluster.evaluators))]
        # What there is by now is perhaps of tasks of before.
        self._others: dict[TaskName, TaskUsage | None] = dict.fromkeys(others)
        self._others = self._read()

    def look(self) -> Iterable[TasksMeasured]:
        """What this process takes, and what others have reported since the last call."""
        tasks = {self._own: TaskUsage.own(self._traffic)}
        for task, found in self._read().items():
            if found and found != self._others[task]:
                self._others[task] = tasks[str(task)] = found
        return [TasksMeasured(at=time.time(), tasks=tasks)]

    def _read(self) -> dict[TaskName, TaskUsage | None]:
        """What the others have reported; some at a time, as each may be an object in a bucket."""
        with ThreadPoolExecutor(_READ_AT_ONCE, "usages") as pool:
            read = pool.map(lambda task: TaskUsage.read(self._job_dir, task), self._others)
            return dict(zip(self._others, read, strict=True))


@dataclasses.dataclass(frozen=True)
class Monitoring:
    """How a run is watched.

    `tensorboard` is "" for JOB_DIR/tensorboard. Ports are None for off. `metrics_address` is
    127.0.0.1 for this machine alone. `histograms_every` counts epochs, 0 for never.
    """

    tensorboard: str = ""
    sample_seconds: float = SAMPLE_SECONDS
    overrides: tuple[str, ...] = ()
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    profiler_port: int | None = None
    histograms_every: int = 0
    trackers: tuple[str, ...] = ()

    def traced_at(self, cluster: Cluster) -> dict[str, list[str]]:
        """Where TensorFlow's profiler reaches the tasks of a job, by job; nowhere it may be."""
        if not cluster.is_local:
            return {job: list(addresses) for job, addresses in cluster.spec().items()}
        return {} if self.profiler_port is None else {"chief": [f"127.0.0.1:{self.profiler_port}"]}

    def observe(
        self,
        settings: RunSettings,
        data: RunData,
        states: Callable[[], Mapping[TaskName, str]],
        past: Iterable[RunEvent],
    ) -> RunObserver:
        """Begins to keep what happens in a run; `past` is the job's history."""
        began, job_dir = time.time(), settings.job_dir
        board = StatusBoard(settings, data, states)
        curves = self.tensorboard or job_dir.tensorboard
        watchers: list[Watcher] = [
            RunHistory(job_dir, began),
            TensorBoardLog(curves, began),
            board,
        ]
        stop = None
        if self.metrics_port is not None:
            # Loaded here: it takes its time, which runs that serve nothing are spared.
            from tfps.monitoring.prometheus import MetricsServer, RunMetrics

            metrics = RunMetrics(states)
            stop = MetricsServer(metrics, self.metrics_port, self.metrics_address).close
            watchers.append(metrics)
        watchers.append(RunPage(job_dir))  # it shows what those before it have written
        # The last: others need not wait until a service answers.
        watchers += [
            TrackedRun(_tracker(x), job_dir, settings.experiment.name) for x in self.trackers
        ]
        recorder = RunRecorder(watchers, [TaskUsages(job_dir, settings.cluster).look])
        return RunObserver(recorder, board, past, self.sample_seconds, self.histograms_every, stop)


def log_bound(job_dir: JobDir) -> None:
    """Says what bounded the run that has ended, unless it was too short to tell."""
    events = past_of(job_dir)
    starts = [place for place, event in enumerate(events) if isinstance(event, RunBegan)]
    try:
        run = MeasuredRun.of(events[starts[-1] :] if starts else [])
    except TooShortError:
        return
    _log.info("%s (python -m trainer.plan %s)", bound_text.sentence(run), job_dir)


def _tracker(name: str) -> Tracker:
    """A service that keeps runs; its library is loaded here."""
    module = importlib.import_module(f"tfps.monitoring.{name}_tracker")
    tracker: Tracker = getattr(module, TRACKERS[name])()
    return tracker


def past_of(job_dir: JobDir) -> list[RunEvent]:
    """The job's history; one that cannot be read ends no run."""
    try:
        return recorder.read(job_dir)
    except (StorageError, UserError) as error:
        _log.warning("the history cannot be read: %s", error)
        return []
