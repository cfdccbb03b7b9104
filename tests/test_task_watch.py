import socket
import threading

import pytest

from tfps import task_watch
from tfps.errors import RunError, UserError
from tfps.server import ServerOptions, wait_for_end_of_chief
from tfps.task_watch import TaskWatch, is_reachable, wait_until_reachable

WAIT = 20


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address_of(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


def closed_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return address_of(server)


def test_reachable_is_what_accepts_a_connection(listener):
    assert is_reachable(address_of(listener))
    assert not is_reachable(closed_address())
    assert not is_reachable("no-such-host.invalid:1")


def test_tasks_that_are_not_reachable_in_time_are_named(listener):
    missing = closed_address()
    addresses = {"ps 0": address_of(listener), "worker 1": missing}
    with pytest.raises(UserError, match="worker 1 at " + missing) as raised:
        wait_until_reachable(addresses, limit_seconds=0.3)
    assert "ps 0" not in str(raised.value)
    wait_until_reachable({"ps 0": address_of(listener)}, limit_seconds=0.3)


class Probe:
    """Answers as told and says when it was asked."""

    def __init__(self):
        self.reachable = True
        self._asked = threading.Semaphore(0)

    def __call__(self, address):
        self._asked.release()
        return self.reachable

    def wait(self, times=2):
        for _ in range(times):
            assert self._asked.acquire(timeout=WAIT)


@pytest.fixture
def watched():
    probe = Probe()
    watch = TaskWatch({"worker 0": "host:1"}, probe, interval_seconds=0.01)
    watch.start()
    yield watch, probe
    watch.stop()


def test_a_loss_and_a_return_are_one_failure(watched):
    watch, probe = watched
    probe.wait()
    assert watch.failures == []
    probe.reachable = False
    probe.wait(3)
    (failure,) = watch.failures
    assert (failure.task, failure.back_after) == ("worker 0", None)
    assert watch.down("worker") == ["worker 0 at host:1"]
    assert watch.down("ps") == []
    probe.reachable = True
    probe.wait(3)
    assert failure.back_after > 0
    assert watch.down("worker") == []
    assert len(watch.failures) == 1


def test_a_task_is_lost_after_a_while_only(watched, monkeypatch):
    watch, probe = watched
    probe.reachable = False
    probe.wait(3)
    assert watch.lost("worker") == []
    monkeypatch.setattr(task_watch, "LOST_SECONDS", 0.0)
    assert watch.lost("worker") == ["worker 0 at host:1"]


def test_a_server_ends_when_the_chief_is_done(listener):
    accepted = threading.Event()

    def accept_then_close():
        connection, _ = listener.accept()
        connection.close()
        listener.close()
        accepted.set()

    thread = threading.Thread(target=accept_then_close)
    thread.start()
    options = ServerOptions(chief_wait_seconds=WAIT, chief_lost_seconds=WAIT)
    wait_for_end_of_chief(address_of(listener), accepted.is_set, options, threading.Event())
    thread.join()


def test_a_server_ends_when_the_chief_never_comes_or_stays_away(listener):
    options = ServerOptions(chief_wait_seconds=0.1, chief_lost_seconds=0.1)
    with pytest.raises(RunError, match="did not appear"):
        wait_for_end_of_chief(closed_address(), lambda: True, options, threading.Event())

    address = address_of(listener)
    threading.Thread(target=lambda: (listener.accept()[0].close(), listener.close())).start()
    with pytest.raises(RunError, match="has been away"):
        wait_for_end_of_chief(address, lambda: False, options, threading.Event())
