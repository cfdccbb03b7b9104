import threading

import pytest

from tests.polling import Polling
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.worker_coordinator import Diagnosis
from tfps.data.record_source import Piece, RecordSource
from tfps.job_dir.task_name import TaskName
from tfps.leases.lease import Lease
from tfps.leases.progress import LaneProgress

LEASES = [Lease(0, n, RecordSource(f"shard-{n}", ""), 0, 100, 0, 10) for n in range(3)]
WAITING = LaneProgress(0, -1, 0, 0, 0.0)


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("tfps.coordinator.worker_coordinator.time", clock)
    monkeypatch.setattr("tfps.cluster.monitor.time", clock)
    monkeypatch.setattr("tests.polling.time", clock)
    return clock


ADDRESSES = {TaskName("ps", 0): "h:1", TaskName("worker", 0): "h:2", TaskName("worker", 1): "h:3"}


def held(worker, steps, attempts=1):
    return LaneProgress(attempts, worker, steps, 0, 0.0)


def test_a_lease_is_held_from_its_last_batch_on(clock):
    diagnosis = Diagnosis(TaskMonitor(ADDRESSES))
    assert diagnosis.longest == 0.0
    leases = {0: LEASES[0], 1: LEASES[1], 2: LEASES[2]}
    for seconds, rows in (
        (0, [held(0, 3), held(1, 5), WAITING]),
        (10, [held(0, 4), held(1, 5), WAITING]),
        (10, [held(0, 5), held(1, 5), WAITING]),
    ):
        clock.now += seconds
        diagnosis.note(leases, rows)
    assert diagnosis.longest == 20.0
    diagnosis.note({0: LEASES[0], 1: LEASES[2]}, [held(0, 5), held(1, 5), WAITING])
    assert diagnosis.longest == 0.0  # another lease in the same lane
    clock.now += 1
    diagnosis.note({}, [held(0, 5), held(1, 5), WAITING])
    assert diagnosis.longest == 0.0


def watching(**seen):
    """A watch that has found tasks absent: "ps_0" as given, the others there."""
    by_address = {
        ADDRESSES[TaskName.parse(task.replace("_", " "))]: each for task, each in seen.items()
    }
    asked = {address: threading.Semaphore(0) for address in ADDRESSES.values()}

    def probe(address):
        asked[address].release()
        return by_address.get(address, Liveness.ANSWERS)

    monitor = TaskMonitor(ADDRESSES, Polling(ADDRESSES, probe))
    monitor.start()
    for each in asked.values():
        for _ in range(2):  # the first was noted when the second is asked for
            assert each.acquire(timeout=20)
    monitor.stop()
    return monitor


def test_a_stall_names_who_holds_what_and_since_when(clock):
    diagnosis = Diagnosis(watching(worker_1=Liveness.SILENT, ps_0=Liveness.REFUSES))
    leases = {0: LEASES[0], 1: LEASES[1], 2: LEASES[2]}
    diagnosis.note(leases, [held(0, 4), held(1, 0), WAITING])
    clock.now += 30
    error = str(diagnosis.stall("batch was trained", 31.0))
    assert error.startswith("no batch was trained for 31 s: ")
    clauses = error.split(": ", 1)[1]
    silent, refuses = Liveness.SILENT, Liveness.REFUSES
    assert (
        "worker 0 at h:2 has held epoch 1, shard shard-0, records 0 to 99 for 30 s, 4 batches "
        "trained: it answers (look in its log, and whether it can read the shard and reach every "
        "ps)"
    ) in clauses
    assert (
        "worker 1 at h:3 has held epoch 1, shard shard-1, records 0 to 99 for 30 s, 0 batches "
        f"trained: {silent.value} for 30 s ({silent.what_to_do})"
    ) in clauses
    assert f"ps 0 at h:1: {refuses.value} for 30 s ({refuses.what_to_do})" in clauses
    assert "shard-2" not in error
    assert clauses.count("worker 1 at") == 1
    assert error.endswith("; --stall_seconds allows more time")


def test_a_stall_before_anybody_has_begun(clock):
    diagnosis = Diagnosis(watching(worker_0=Liveness.SILENT))
    diagnosis.note({0: LEASES[0]}, [WAITING])
    error = str(diagnosis.stall("batch was trained", 5.0))
    begin = "no batch was trained for 5 s: no worker has begun what it was given; worker 0 at h:2: "
    assert error.startswith(begin)
    piece = Piece(2, RecordSource("shard-2", ""), 100, 50, False)
    error = str(diagnosis.stall("record was evaluated", 5.0, str(piece)))
    assert error.startswith(
        "no record was evaluated for 5 s: records 100 to 150 of shard-2; worker 0 at h:2: "
    )
    nobody = str(Diagnosis(watching()).stall("shard was evaluated", 5.0))
    assert "every task answers; look in the workers' logs" in nobody
