"""Tells what a run waits for in vain: which task, where, what it does, for how long, what to do."""

import time
from collections.abc import Mapping, Sequence

from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.errors import RunError
from tfps.job_dir.task_name import TaskName
from tfps.leases.lease import Lease
from tfps.leases.progress import LaneProgress

_STUCK = "look in its log, and whether it can read the shard and reach every ps"


class Diagnosis:
    """Knows which worker has held which lease for how long without training a batch of it."""

    def __init__(self, monitor: TaskMonitor):
        self._monitor = monitor
        self._held: dict[int, tuple[Lease, LaneProgress, float]] = {}

    def note(self, leases: Mapping[int, Lease], rows: Sequence[LaneProgress]) -> None:
        """Notes the progress of the leases in flight."""
        before, now = self._held, time.monotonic()
        self._held = {}
        for lane, lease in leases.items():
            if rows[lane].worker >= 0:
                held, seen = (lease, rows[lane]), before.get(lane)
                is_same = seen is not None and seen[:2] == held
                self._held[lane] = (*held, seen[2] if seen and is_same else now)

    @property
    def longest(self) -> float:
        """For how many seconds some lease has been held without a batch."""
        return max((time.monotonic() - since for *_, since in self._held.values()), default=0.0)

    def stall(self, what: str, seconds: float) -> RunError:
        """The error of a wait that was too long.

        Args:
            what: What did not come, such as "batch was trained".
        """
        clauses = [self._holder(*held) for held in self._held.values()]
        told = {TaskName("worker", row.worker) for _, row, _ in self._held.values()}
        for outage in self._monitor.outages():
            if outage.task not in told:
                clauses.append(f"{outage}: {_describe(outage.liveness, outage.seconds)}")
        if not self._held:
            clauses.insert(0, "no worker has begun what it was given")
        if len(clauses) == 1 and not self._held:
            clauses.append("every task answers; look in the workers' logs")
        return RunError(
            f"no {what} for {seconds:.0f} s: {'; '.join(clauses)}; --stall_seconds allows more time"
        )

    def _holder(self, lease: Lease, row: LaneProgress, since: float) -> str:
        task = TaskName("worker", row.worker)
        outage = self._monitor.outage(task)
        state = _describe(outage.liveness, outage.seconds) if outage else f"it answers ({_STUCK})"
        return (
            f"{self._monitor.place(task)} has held {lease} for {time.monotonic() - since:.0f} s, "
            f"{row.steps} batches trained: {state}"
        )


def _describe(liveness: Liveness, seconds: float) -> str:
    return f"{liveness.value} for {seconds:.0f} s ({liveness.what_to_do})"
