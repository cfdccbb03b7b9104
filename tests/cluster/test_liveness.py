import contextlib
import os
import queue
import signal
import socket
import threading

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests import peers
from tests.answering_servers import AnsweringServers, other_process, status
from tests.name_server import NameServer
from tests.peers import Peer
from tfps.cluster import liveness
from tfps.cluster.liveness import Liveness, Prober, ServerIdentity, ask_all, kept_probe, probe
from tfps.job_dir.task_name import TaskName

WAIT = 20
FOREIGN = [
    peers.speak_http1,
    peers.greet_as_ssh,
    peers.hang_up,
    peers.reset,
    peers.send_away,
]


@contextlib.contextmanager
def probing(addresses, interval_seconds=0.01, answer_seconds=5.0):
    """What a prober sees, as a queue."""
    seen = queue.Queue()
    prober = Prober(addresses, interval_seconds, answer_seconds)
    prober.start(seen.put)
    try:
        yield seen
    finally:
        prober.stop()


def of(seen, address):
    """The next thing that is seen of an address."""
    while (result := seen.get(timeout=WAIT)).address != address:
        pass
    return result.liveness


def tensorflow_server(job, index):
    """A TensorFlow server, as its task would start it; returns its address."""
    address = peers.free_address()
    spec = tf.train.ClusterSpec({job: {index: address}})
    server = tf.distribute.Server(spec, job_name=job, task_index=index)
    return server.target.removeprefix("grpc://")


def connections_to(address):
    """This process's own ends of them."""
    port = int(address.rsplit(":", 1)[1])
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr for each in connections if each.raddr and each.raddr[1] == port}


@pytest.mark.slow
def test_a_tensorflow_server_answers_on_one_connection_for_thousands_of_questions():
    """GRPC hangs up on clients that send too many PINGs, but not on these."""
    address = tensorflow_server("worker", 0)
    with probing([address], interval_seconds=0.0) as seen:
        assert of(seen, address) is Liveness.ANSWERS
        connections = connections_to(address)
        assert len(connections) == 1
        assert {of(seen, address) for _ in range(2000)} == {Liveness.ANSWERS}
        assert connections_to(address) == connections
    assert connections_to(address) == set()


def test_a_tensorflow_server_that_computes_on_all_its_threads_answers():
    """`GetStatus` waits for one of them, gRPC does not."""
    server = tf.distribute.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    go_on, busy = threading.Event(), threading.Semaphore(0)

    def compute():
        busy.release()
        assert go_on.wait(WAIT)
        return np.float32(0.0)

    count = 2 * os.cpu_count() + 8  # more than threads
    with tf.Graph().as_default():
        results = tf.add_n([tf.numpy_function(compute, [], tf.float32) for _ in range(count)])
        session = tf.compat.v1.Session(server.target)
        thread = threading.Thread(target=session.run, args=(results,))
        thread.start()
        assert busy.acquire(timeout=WAIT)
        while (result := probe(address, 2.0)).identity:
            pass
        go_on.set()
        thread.join()
        session.close()
    assert result.liveness is Liveness.ANSWERS
    assert probe(address).identity.task.job == "localhost"


def test_a_server_says_which_task_it_is():
    """Fails when the part of TensorFlow's own protocol that is used changes."""
    addresses = [tensorflow_server("worker", 12) for _ in range(2)]
    results = ask_all(addresses)
    first, other = (results[address].identity for address in addresses)
    assert first.task == other.task == TaskName("worker", 12)
    assert first.incarnation != other.incarnation
    assert min(first.incarnation, other.incarnation) > 0
    assert [probe(addresses[0]).identity for _ in range(50)] == [first] * 50


@pytest.mark.parametrize("act", FOREIGN)
def test_other_programs_are_foreign_again_and_again(act):
    with Peer(act) as peer, probing([peer.address], answer_seconds=2.0) as seen:
        assert [of(seen, peer.address) for _ in range(3)] == [Liveness.FOREIGN] * 3


@pytest.mark.parametrize("response", [b"", b"\xff", b"\x0a\x03\x0a\x01x", status("a-b")])
def test_an_answer_that_is_no_status_is_foreign(response):
    with AnsweringServers(response=response) as server:
        assert probe(server.address).liveness is Liveness.FOREIGN


def test_another_grpc_server_is_foreign():
    with AnsweringServers(method="Other") as server:
        result = probe(server.address)
    assert (result.liveness, result.identity) == (Liveness.FOREIGN, None)


def test_what_accepts_and_says_nothing_is_silent():
    with Peer(peers.stay_silent) as peer, probing([peer.address], answer_seconds=0.5) as seen:
        assert [of(seen, peer.address) for _ in range(3)] == [Liveness.SILENT] * 3


def test_a_stopped_process_is_silent_until_it_continues():
    with (
        other_process() as (process, [address]),
        probing([address], answer_seconds=1.0) as seen,
    ):
        assert of(seen, address) is Liveness.ANSWERS
        process.send_signal(signal.SIGSTOP)
        while (result := of(seen, address)) is Liveness.ANSWERS:
            pass
        assert result is Liveness.SILENT  # on a connection that it had
        assert probe(address, 0.5).liveness is Liveness.SILENT  # on another
        process.send_signal(signal.SIGCONT)
        while (result := of(seen, address)) is Liveness.SILENT:
            pass
        assert result is Liveness.ANSWERS
        process.kill()
        while (result := of(seen, address)) is Liveness.ANSWERS:
            pass
        assert result is Liveness.REFUSES


def test_what_does_not_listen():
    refusing = peers.refusing_address()
    with probing([refusing, "no-such-host.invalid:1"]) as seen:
        assert of(seen, refusing) is Liveness.REFUSES
        assert of(seen, "no-such-host.invalid:1") is Liveness.UNKNOWN_HOST


def test_what_no_packet_reaches_is_unreachable():
    """Linux drops what comes to a listener whose queue is full."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        address = f"127.0.0.1:{full.getsockname()[1]}"
        with probing([address], answer_seconds=1.0) as seen:
            assert [of(seen, address) for _ in range(2)] == [Liveness.UNREACHABLE] * 2


def test_a_process_that_ends_while_it_is_asked_refuses():
    """It cuts off whom it has accepted; that is no sign of another program."""
    listener = socket.create_server(("127.0.0.1", 0))

    def end():
        connection, _ = listener.accept()
        listener.close()
        connection.close()

    ending = threading.Thread(target=end)
    ending.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert probe(address).liveness is Liveness.REFUSES
    ending.join()


def test_those_that_are_silent_delay_none_of_many():
    with (
        Peer(peers.stay_silent) as silent,
        AnsweringServers(["127.0.0.1:0"] * 200) as servers,
        probing([silent.address, *servers.addresses], 0.1, WAIT) as seen,
    ):
        assert silent.asked.wait(WAIT)
        answers = dict.fromkeys(servers.addresses, 0)
        while min(answers.values()) < 3:
            result = seen.get(timeout=WAIT)
            assert result.liveness is Liveness.ANSWERS
            answers[result.address] += 1


def test_all_are_asked_by_as_many_threads_however_many_there_are():
    probe(peers.refusing_address())  # the loop of all probers runs
    counts = []
    for count in (1, 100):
        with (
            AnsweringServers(["127.0.0.1:0"] * count) as servers,
            probing(servers.addresses) as seen,
        ):
            before = set(threading.enumerate())
            left = set(servers.addresses)
            while left:
                left.discard(seen.get(timeout=WAIT).address)
            counts.append(len(set(threading.enumerate()) - before))
    assert max(counts) <= 5  # of the servers, however many


def test_many_are_asked_less_often():
    assert Prober(["h:1"] * 500)._interval == 1.0
    assert Prober(["h:1"] * 1000)._interval == 2.0


def test_all_are_asked_at_once():
    with AnsweringServers(response=status("ps", 3, 77)) as server:
        refusing = peers.refusing_address()
        results = ask_all([server.address, refusing])
        assert {address: each.liveness for address, each in results.items()} == {
            server.address: Liveness.ANSWERS,
            refusing: Liveness.REFUSES,
        }
        assert results[server.address].identity == ServerIdentity(TaskName("ps", 3), 77)
    assert ask_all([]) == {}


def test_a_kept_probe_has_one_connection():
    with AnsweringServers() as server, kept_probe(server.address) as ask:
        assert [ask().liveness for _ in range(10)] == [Liveness.ANSWERS] * 10
        assert len(server.askers) == 1
        server.close()
        assert ask().liveness is Liveness.REFUSES


def test_a_task_that_moved_is_found_again_and_who_answers_costs_no_lookup(monkeypatch):
    monkeypatch.setattr(liveness, "_RESOLVE_SECONDS", 0.1)
    with NameServer() as names, contextlib.ExitStack() as stack:
        names.hosts["moving-ps.job"] = "127.0.0.2"
        before = stack.enter_context(AnsweringServers(["127.0.0.2:0"]))
        port = before.address.rsplit(":", 1)[1]
        address = names.uri(f"moving-ps.job:{port}")
        seen = stack.enter_context(probing([address], answer_seconds=2.0))
        assert of(seen, address) is Liveness.ANSWERS
        times = len(names.asked)
        assert {of(seen, address) for _ in range(100)} == {Liveness.ANSWERS}
        assert len(names.asked) == times
        before.close()
        while of(seen, address) is not Liveness.REFUSES:
            pass
        names.hosts["moving-ps.job"] = "127.0.0.3"
        after = stack.enter_context(AnsweringServers([f"127.0.0.3:{port}"]))
        while of(seen, address) is not Liveness.ANSWERS:
            pass
        assert after.asked.is_set()


@pytest.mark.parametrize("seen", Liveness)
def test_there_is_something_to_do_about_each(seen):
    assert seen.what_to_do
