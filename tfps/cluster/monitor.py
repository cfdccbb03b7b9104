"""Watches from the chief whether the other tasks' servers answer."""

import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from tfps.cluster.failures import lost_ps
from tfps.cluster.liveness import Liveness, Prober, ProbeResult
from tfps.job_dir.task_name import TaskName

LOST_SECONDS = 3.0
SILENT_SECONDS = 10.0
_PENDING_LOOKS, _PENDING_SECONDS = 100, 0.1  # for pending results; a guard has some every second
_MOST_FAILURES = 1000  # that a run remembers one by one: its report is written again and again
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class Failure:
    """One loss of a task."""

    task: TaskName
    what: str
    when: float  # seconds since the epoch at which it was seen
    back_after: float | None = None  # seconds until it answered again; None while it has not

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "task": str(self.task)}


class Failures(collections.deque[Failure]):
    """The last losses of tasks, oldest first."""

    def __init__(self, last: Sequence[Failure] = (), by_job: Mapping[str, int] | None = None):
        super().__init__(last, _MOST_FAILURES)
        self.by_job = collections.Counter(by_job)

    def append(self, failure: Failure) -> None:
        super().append(failure)
        self.by_job[failure.task.job] += 1


@dataclasses.dataclass
class Outage:
    """A task that does not answer now."""

    task: TaskName
    address: str
    liveness: Liveness
    since: float  # when it was first asked in vain, on the monotonic clock
    probes: int
    failure: Failure
    is_reported: bool = False

    def __str__(self) -> str:
        return f"{self.task} at {self.address}"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    @property
    def is_lost(self) -> bool:
        """Whether that is so long that it does not count as a delay."""
        limit = LOST_SECONDS if self.liveness is Liveness.REFUSES else SILENT_SECONDS
        # More than one probe: this process itself may have been stopped during the first.
        return self.probes > 1 and self.seconds >= limit


class HealthProber(Protocol):
    """Asks all tasks again and again, once it is started."""

    @property
    def reported_until(self) -> float:
        """All that had come by then was reported; on the monotonic clock."""

    def start(self, on_result: Callable[[ProbeResult], None]) -> None:
        """Starts, unless it has; `on_result` is called by one thread at a time."""

    def stop(self) -> None: ...


class TaskMonitor:
    """Keeps what is seen of the tasks: which do not answer, and the list of failures.

    A task that refuses connections is lost soon: its process has ended. One that does not answer
    may only be slow; after `SILENT_SECONDS` it is lost too.
    """

    def __init__(
        self,
        addresses: Mapping[TaskName, str],
        prober: HealthProber | None = None,
        hang_up: Callable[[str], None] = lambda address: None,
        failures: Failures | None = None,
    ):
        """`hang_up` is called after each probe of a task that is lost and does not refuse.

        `failures` are those that a program before this one has seen.
        """
        self.failures = Failures() if failures is None else failures
        self._addresses = addresses
        self._tasks = {address: task for task, address in addresses.items()}
        self._prober = prober or Prober(addresses.values())
        self._hang_up = hang_up
        self._absences: dict[TaskName, Outage] = {}
        # Losses that a program before this one has seen, of tasks that were not back by its end.
        self._open = {each.task: each for each in self.failures if each.back_after is None}
        self._watched: set[TaskName] = set()
        self._stop = threading.Event()

    def start(self, without: Collection[TaskName] = ()) -> None:
        """Starts to watch the tasks that it does not watch yet."""
        self._watched |= self._addresses.keys() - set(without)
        if self._watched:
            self._prober.start(self.record)

    def stop(self) -> None:
        """Asks nobody any more; tasks that go down from now on are no failures."""
        self._stop.set()
        self._prober.stop()

    def record(self, result: ProbeResult) -> None:
        """Records what was seen of a task that is watched; by one thread at a time."""
        task, seen = self._tasks[result.address], result.liveness
        if self._stop.is_set() or task not in self._watched:
            return
        outage = self._absences.get(task)
        if seen is Liveness.ANSWERS:
            if outage:
                del self._absences[task]
                outage.failure.back_after = outage.seconds
                _log.info("%s is back after %.1f s", task, outage.seconds)
            elif failure := self._open.pop(task, None):
                failure.back_after = max(0.0, result.when - failure.when)
        elif outage is None:
            failure = self._open.pop(task, None)
            if failure is None:
                failure = Failure(task, seen.value, result.when)
                self.failures.append(failure)
            address = self._addresses[task]
            self._absences[task] = Outage(task, address, seen, result.since, 1, failure)
            is_certain = seen is Liveness.REFUSES
            says = "%s is lost: %s" if is_certain else "%s may be lost: %s"
            _log.warning(says, self.place(task), seen.value)
        else:
            outage.liveness = seen
            outage.probes += 1
            if seen is not Liveness.REFUSES and outage.is_lost:
                self._hang_up(self._addresses[task])
                if not outage.is_reported:
                    outage.is_reported = True
                    _log.warning("%s is lost: it did not answer for %.0f s", outage, outage.seconds)

    def wait_for_pending_probes(self) -> None:
        """Waits until what the prober has seen by now is recorded.

        TensorFlow holds Python's lock while it registers a function with tasks that do not answer:
        no thread of this process has seen anything meanwhile. So looks are counted, not seconds:
        with each, others have their turn.
        """
        began, looks = time.monotonic(), _PENDING_LOOKS if self._watched else 0
        while self._prober.reported_until <= began and looks:
            self._stop.wait(_PENDING_SECONDS)
            looks -= 1

    def place(self, task: TaskName) -> str:
        """A task's name with its address, as "ps 1 at host:port", if it has one."""
        return f"{task} at {self._addresses[task]}" if task in self._addresses else str(task)

    def outage(self, task: TaskName) -> Outage | None:
        return self._absences.get(task)

    def outages(self) -> list[Outage]:
        return list(self._absences.values())

    def down(self, job: str) -> list[Outage]:
        """The tasks of a job that do not answer now, lost or not."""
        return [outage for outage in self.outages() if outage.task.job == job]

    def refuse_lost_ps(self) -> None:
        if lost := self.lost("ps"):
            raise lost_ps(", ".join(map(str, lost)))

    def lost(self, job: str) -> list[Outage]:
        return [outage for outage in self.down(job) if outage.is_lost]
