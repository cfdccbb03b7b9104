import contextlib
import ctypes
import json
import queue
import signal
import socket
import threading

import psutil
import pytest
import tensorflow as tf

from tests import peers
from tests.answering_servers import AnsweringServers
from tests.peers import Peer
from tfps.cluster import connection_guard
from tfps.cluster.connection_breaker import LONGEST_REPORT, ConnectionBreaker, ReportingProber
from tfps.cluster.connection_guard import ConnectionGuard
from tfps.cluster.liveness import Liveness, ProbeResult
from tfps.cluster.monitor import SILENT_SECONDS
from tfps.job_dir.task_name import TaskName

WAIT = 20


def connected(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), WAIT)


def was_broken(connection, hang_up):
    """Hangs up until the connection has ended: its copy may still be on the way."""
    for _ in range(400):
        hang_up()
        with contextlib.suppress(TimeoutError):
            return connection.recv(1) == b""
    return False


def test_what_is_done_to_a_copy_is_done_to_the_connection():
    breaker = ConnectionBreaker()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    thread = threading.Thread(target=breaker.follow, args=(theirs,))
    thread.start()
    with Peer(peers.stay_silent) as peer, ours, theirs, contextlib.ExitStack() as stack:
        first, gone, other, last = (stack.enter_context(connected(peer.address)) for _ in range(4))

        def hand_over(name, address, connection):
            socket.send_fds(ours, [json.dumps([address, name]).encode()], [connection.fileno()])

        hand_over("1", "a", first)
        hand_over("2", "a", gone)
        hand_over("3", "b", other)
        ours.send(json.dumps(["", "2"]).encode())
        hand_over("4", "c", last)
        last.settimeout(0.05)
        assert was_broken(last, lambda: breaker.hang_up("c"))  # so the others have arrived
        breaker.hang_up("a")
        assert first.recv(1) == b""
        for still_open in (gone, other):
            still_open.settimeout(0.1)
            with pytest.raises(TimeoutError):
                still_open.recv(1)
        assert was_broken(other, lambda: breaker.hang_up("b"))
        ours.shutdown(socket.SHUT_WR)
        thread.join(WAIT)
        assert not thread.is_alive()


def test_the_process_ends_with_the_guard_and_without_tasks_there_is_none():
    before = psutil.Process().children()
    ConnectionGuard({}).start()
    assert psutil.Process().children() == before
    guard = ConnectionGuard({TaskName("ps", 0): peers.refusing_address()})
    guard.start()
    [process] = set(psutil.Process().children()) - set(before)
    assert "tfps.cluster.connection_breaker" in process.cmdline()
    guard.stop()
    assert not process.is_running()


def test_the_process_reports_what_it_sees_and_is_restarted_when_it_is_lost():
    seen = queue.Queue()
    with AnsweringServers() as server:
        guard = ConnectionGuard(
            {TaskName("ps", 0): server.address, TaskName("ps", 1): peers.refusing_address()}
        )
        before = set(psutil.Process().children())
        guard.start(seen.put)
        for _ in range(2):
            reported = {}
            while len(reported) < 2:
                result = seen.get(timeout=60)
                reported[result.address] = result.liveness
            assert reported[server.address] is Liveness.ANSWERS
            assert set(reported.values()) == {Liveness.ANSWERS, Liveness.REFUSES}
            [process] = set(psutil.Process().children()) - before
            process.kill()  # the next one reports again that a task answers
            process.wait()
            while not seen.empty():
                seen.get()
        guard.stop()
    assert set(psutil.Process().children()) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_of_a_task_leaves_the_process(number, caplog):
    """As Slurm and terminals send it: the chief saves meanwhile, and must see the tasks."""
    seen = threading.Event()
    before = set(psutil.Process().children())
    guard = ConnectionGuard({TaskName("ps", 0): peers.refusing_address()})
    guard.start(lambda _: seen.set())
    [process] = set(psutil.Process().children()) - before
    assert seen.wait(60)
    process.send_signal(number)
    seen.clear()
    assert seen.wait(60)
    assert set(psutil.Process().children()) - before == {process}
    guard.stop()
    assert not caplog.messages


@pytest.mark.slow
def test_the_process_is_not_lost_because_this_one_could_not_listen(monkeypatch, caplog):
    """As while TensorFlow holds Python's lock, which the C library's sleep does here."""
    monkeypatch.setattr(connection_guard, "_SILENT_SECONDS", 2.0)
    hold_lock = ctypes.PyDLL(None).usleep
    reported = threading.Event()
    guard = ConnectionGuard({TaskName("ps", 0): peers.refusing_address()})
    guard.start(lambda _: reported.set())
    for _ in range(2):
        reported.clear()
        assert reported.wait(WAIT)
        hold_lock(2_500_000)
    reported.clear()
    assert reported.wait(WAIT)
    guard.stop()
    assert not caplog.messages


def test_news_that_is_not_read_is_reported_when_it_is():
    """The newest of each task, so that a return is never lost; and an answer is reported once."""

    class Results:
        def start(self, on_result):
            self.add = on_result

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        results, passed_on = Results(), []
        ReportingProber(results, theirs).start(passed_on.append)
        for seen in (Liveness.REFUSES, Liveness.ANSWERS, Liveness.ANSWERS):
            for task in range(5000):
                results.add(ProbeResult(f"host-{task}:1", seen, 1.0, 2.0))
        assert len(passed_on) == 15_000
        newest, messages = {}, 0
        while len(newest) < 5000 or set(newest.values()) != {"ANSWERS"}:
            report = json.loads(ours.recv(LONGEST_REPORT))
            newest |= {address: name for address, name, *_ in report}
            messages += len(report)
        assert messages <= 10_000
        assert json.loads(ours.recv(LONGEST_REPORT)) == []  # it still looks


@pytest.mark.slow
def test_connections_to_a_silent_task_break_others_stay():
    server = tf.distribute.Server.create_local_server()
    good = server.target.removeprefix("grpc://")
    with (
        Peer(peers.stay_silent) as silent,
        connected(silent.address) as broken,
        connected(good) as whole,
    ):
        guard = ConnectionGuard(
            {TaskName("worker", 0): silent.address, TaskName("worker", 1): good}
        )
        guard.start()
        broken.settimeout(SILENT_SECONDS + WAIT)
        assert broken.recv(1) == b""
        guard.stop()
        assert whole.recv(1000)  # the server's preface, which it sends at once
        whole.settimeout(0.1)
        with pytest.raises(TimeoutError):
            whole.recv(1)
