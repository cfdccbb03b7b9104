import contextlib
import threading
import time

import pytest

from tests import peers
from tests.answering_servers import AnsweringServers
from tests.peers import Peer
from tests.polling import Polling
from tfps.cluster import monitor
from tfps.cluster.liveness import Liveness, Prober
from tfps.cluster.monitor import Failure, Failures, TaskMonitor
from tfps.cluster.server import ServerOptions, wait_for_end_of_chief
from tfps.errors import RunError
from tfps.job_dir.task_name import TaskName

WAIT = 20


class Probe:
    """Answers as a test says, and counts how often."""

    def __init__(self):
        self.seen = Liveness.ANSWERS
        self._asked = threading.Semaphore(0)

    def __call__(self, address):
        self._asked.release()
        return self.seen

    def wait(self, times=2):
        for _ in range(times):
            assert self._asked.acquire(timeout=WAIT)


@pytest.fixture
def hung_up():
    return []


@pytest.fixture
def watched(hung_up):
    probe = Probe()

    def hang_up(address):
        hung_up.append(address)
        return 1

    addresses = {TaskName("worker", 0): "host:1"}
    watch = TaskMonitor(addresses, Polling(addresses, probe), hang_up=hang_up)
    watch.start()
    yield watch, probe
    watch.stop()


def test_a_loss_and_a_return_are_one_failure(watched):
    watch, probe = watched
    probe.wait()
    assert not watch.failures
    probe.seen = Liveness.REFUSES
    probe.wait(3)
    (failure,) = watch.failures
    assert (failure.task, failure.back_after) == (TaskName("worker", 0), None)
    assert failure.what == "its port refused connections"
    assert list(map(str, watch.down("worker"))) == ["worker 0 at host:1"]
    assert watch.down("ps") == []
    probe.seen = Liveness.ANSWERS
    probe.wait(3)
    assert failure.back_after > 0
    assert watch.down("worker") == []
    assert len(watch.failures) == 1


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        (Liveness.REFUSES, "LOST_SECONDS"),
        (Liveness.SILENT, "SILENT_SECONDS"),
        (Liveness.UNREACHABLE, "SILENT_SECONDS"),
    ],
)
def test_a_task_is_lost_after_a_while_only(watched, monkeypatch, seen, limit):
    watch, probe = watched
    probe.seen = seen
    probe.wait(5)
    assert watch.lost("worker") == []
    assert watch.outage(TaskName("worker", 0)).liveness is seen
    monkeypatch.setattr(monitor, limit, 0.0)
    assert list(map(str, watch.lost("worker"))) == ["worker 0 at host:1"]


def test_a_task_is_not_lost_by_a_single_probe(monkeypatch):
    """Which may have been long because this process was stopped meanwhile."""
    monkeypatch.setattr(monitor, "SILENT_SECONDS", 0.0)
    asked = threading.Event()

    def probe(address):
        if asked.is_set():
            time.sleep(WAIT)
        asked.set()
        return Liveness.SILENT

    addresses = {TaskName("ps", 0): "host:1"}
    watch = TaskMonitor(addresses, Polling(addresses, probe))
    watch.start()
    assert asked.wait(WAIT)
    deadline = time.monotonic() + WAIT
    while not watch.down("ps"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert watch.lost("ps") == []
    watch.stop()


def test_a_silent_task_is_hung_up_on_until_it_answers(watched, hung_up, monkeypatch):
    _, probe = watched
    monkeypatch.setattr(monitor, "LOST_SECONDS", 0.0)
    monkeypatch.setattr(monitor, "SILENT_SECONDS", 0.0)
    probe.seen = Liveness.REFUSES  # its connections are broken as it is
    probe.wait(5)
    assert hung_up == []
    probe.seen = Liveness.SILENT
    probe.wait(5)
    assert hung_up[:2] == ["host:1", "host:1"]
    probe.seen = Liveness.ANSWERS
    probe.wait(3)
    times = len(hung_up)
    probe.wait(3)
    assert len(hung_up) == times


def test_a_silent_task_does_not_delay_the_others(monkeypatch):
    with Peer(peers.stay_silent) as silent:
        addresses = {
            TaskName("worker", 0): silent.address,
            TaskName("worker", 1): peers.refusing_address(),
        }
        watch = TaskMonitor(addresses, Prober(addresses.values(), 0.01))
        watch.start()
        assert silent.asked.wait(WAIT)
        deadline = time.monotonic() + WAIT
        while [outage.task.index for outage in watch.down("worker")] != [1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        watch.stop()


def test_what_was_seen_by_now_can_be_waited_for():
    addresses = {TaskName("ps", 0): "host:1"}
    watch = TaskMonitor(addresses, Polling(addresses, lambda _: Liveness.SILENT, 0.5))
    watch.start()
    assert not watch.outages()
    watch.wait_for_pending_probes()
    assert [str(outage) for outage in watch.outages()] == ["ps 0 at host:1"]
    watch.stop()


@contextlib.contextmanager
def leaving_chief():
    """A chief that leaves once it was asked: its address, and the thread in which it does."""
    with AnsweringServers() as chief:

        def leave():
            assert chief.asked.wait(WAIT)
            chief.close()

        thread = threading.Thread(target=leave)
        thread.start()
        yield chief.address, thread
        thread.join()


def test_a_server_ends_when_the_chief_is_done():
    with leaving_chief() as (address, leaving):
        options = ServerOptions(chief_wait_seconds=WAIT, chief_lost_seconds=WAIT)
        wait_for_end_of_chief(address, lambda: not leaving.is_alive(), options, threading.Event())


def test_a_server_ends_when_the_chief_never_comes():
    options = ServerOptions(chief_wait_seconds=0.1, chief_lost_seconds=0.1)
    with pytest.raises(RunError, match=r"did not appear at .* \(its port refused connections\)"):
        wait_for_end_of_chief(peers.refusing_address(), lambda: True, options, threading.Event())
    foreign = r"did not appear .* was no TensorFlow server"
    with Peer(peers.speak_http1) as other, pytest.raises(RunError, match=foreign):
        wait_for_end_of_chief(other.address, lambda: True, options, threading.Event())


def test_a_server_ends_when_the_chief_stays_away():
    options = ServerOptions(chief_wait_seconds=WAIT, chief_lost_seconds=0.1)
    with (
        leaving_chief() as (address, _),
        pytest.raises(RunError, match="has been away for 0 s"),
    ):
        wait_for_end_of_chief(address, lambda: False, options, threading.Event())


@pytest.mark.parametrize("seen", [Liveness.ANSWERS, Liveness.REFUSES])
def test_a_loss_that_an_earlier_program_saw_ends_when_the_task_is_back(seen):
    worker = TaskName("worker", 0)
    lost = Failure(worker, "refuses", time.time() - 10)
    failures = Failures([Failure(worker, "refuses", 1.0, 2.0), lost], {"worker": 2})
    probe = Probe()
    probe.seen = seen
    watch = TaskMonitor({worker: "host:1"}, Polling({worker: "host:1"}, probe), failures=failures)
    watch.start()
    probe.wait()
    assert (lost.back_after is None) == (seen is Liveness.REFUSES)
    probe.seen = Liveness.ANSWERS
    probe.wait(3)
    watch.stop()
    assert list(watch.failures)[1] is lost
    assert len(watch.failures) == watch.failures.by_job["worker"] == 2
    assert lost.back_after is not None


def test_the_last_failures_are_kept_and_all_are_counted():
    failures = Failures([Failure(TaskName("worker", 0), "?", 1.0)], {"worker": 2000, "ps": 1})
    for number in range(1500):
        failures.append(Failure(TaskName("worker", number), "?", 2.0))
    assert [failures[0].task.index, failures[-1].task.index] == [500, 1499]
    assert failures.by_job == {"worker": 3500, "ps": 1}
