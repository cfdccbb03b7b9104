"""Tells what a run waits for in vain: which task, where, what it does, for how long, what to do."""

import time
from collections.abc import Mapping, Sequence

from tfps.cluster.liveness import Reachability
from tfps.cluster.monitor import TaskWatch
from tfps.errors import RunError
from tfps.leases.lease import Lease
from tfps.leases.progress import SlotProgress

_STUCK = "look in its log, and whether it can read the shard and reach every ps"


class Diagnosis:
    """Knows which worker has held which lease for how long without training a batch of it."""

    def __init__(self, watch: TaskWatch):
        """Prepares it.

        Args:
            watch: Knows which tasks answer.
        """
        self._watch = watch
        self._held: dict[int, tuple[Lease, SlotProgress, float]] = {}

    def note(self, leases: Mapping[int, Lease], rows: Sequence[SlotProgress]) -> None:
        """Notes the progress of the leases in flight.

        Args:
            leases: By slot.
            rows: Of all slots.
        """
        before, now = self._held, time.monotonic()
        self._held = {}
        for slot, lease in leases.items():
            if rows[slot].worker >= 0:
                held, seen = (lease, rows[slot]), before.get(slot)
                is_same = seen is not None and seen[:2] == held
                self._held[slot] = (*held, seen[2] if seen and is_same else now)

    @property
    def longest(self) -> float:
        """For how many seconds some lease has been held without a batch."""
        return max((time.monotonic() - since for *_, since in self._held.values()), default=0.0)

    def stall(self, what: str, seconds: float) -> RunError:
        """The error of a wait that was too long.

        Args:
            what: What did not come, such as "batch was trained".
            seconds: For how long.
        """
        clauses = [self._holder(*held) for held in self._held.values()]
        told = {f"worker {row.worker}" for _, row, _ in self._held.values()}
        for absence in self._watch.absences():
            if absence.failure.task not in told:
                clauses.append(f"{absence.task}: {_told(absence.reachability, absence.seconds)}")
        if not self._held:
            clauses.insert(0, "no worker has begun what it was given")
        if len(clauses) == 1 and not self._held:
            clauses.append("every task answers; look in the workers' logs")
        return RunError(
            f"no {what} for {seconds:.0f} s: {'; '.join(clauses)}; --stall_seconds allows more time"
        )

    def _holder(self, lease: Lease, row: SlotProgress, since: float) -> str:
        task = f"worker {row.worker}"
        absence = self._watch.absence(task)
        state = (
            _told(absence.reachability, absence.seconds) if absence else f"it answers ({_STUCK})"
        )
        return (
            f"{self._watch.place(task)} has held {lease} for {time.monotonic() - since:.0f} s, "
            f"{row.steps} batches trained: {state}"
        )


def _told(reachability: Reachability, seconds: float) -> str:
    return f"{reachability.value} for {seconds:.0f} s ({reachability.what_to_do})"
