"""Leases, whatever happens to workers and chief: every record is trained and counted."""

import numpy as np
import pytest

from tests.leases.closure_model import Places
from tests.leases.lease_model import explore
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.leases.progress import LeaseProgress


def test_every_record_is_trained_and_counted():
    explore(range(30))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_record_is_trained_and_counted_in_many_more_orders():
    explore(range(30, 300))


class AcceptsAnyLease(LeaseProgress):
    """Lets a closure begin though its lane has been given to another lease."""

    def place(self, lane, lease):
        return lane

    def clear(self, leases):
        super().clear(dict.fromkeys(leases, 0))


class CountsWhoHoldsNothing(LeaseProgress):
    """Counts what a closure trains whose lease another has begun."""

    def _is_last(self, lane, attempt):
        return self._workers.sparse_read(lane) >= 0


class TakesEveryEnd(WorkerCoordinator):
    """Takes the end of a closure that was displaced for the end of its lease."""

    def _result(self, future, doing, source):
        attempts, steps, *rest = super()._result(future, doing, source)
        return np.array([max(attempts, 1), 1 << 20 if steps < 0 else steps, *rest])


@pytest.mark.parametrize("progress", [AcceptsAnyLease, CountsWhoHoldsNothing])
def test_a_wrong_progress_is_found(progress):
    places = Places(progress)
    with pytest.raises(AssertionError):
        explore(range(200), places)


def test_a_wrong_chief_is_found():
    with pytest.raises(AssertionError):
        explore(range(200), chief=TakesEveryEnd)
