import contextlib
import os
import queue
import socket
import threading

import pytest
import tensorflow as tf
from tfps.cluster.http2 import Http2Connection

from tests import peers
from tests.answering_servers import AnsweringServers
from tests.peers import Peer
from tfps.cluster import names as names_module
from tfps.cluster.liveness import Liveness, Prober, ask_all

WAIT = 20
REAL = socket.getaddrinfo


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
        assert Http2Connection.open_descriptors == set()


@contextlib.contextmanager
def answering(count):
    servers, (end, ender) = AnsweringServers(count), os.pipe()
    thread = threading.Thread(target=servers.run, args=(end,))
    thread.start()
    yield servers.addresses
    os.write(ender, b"x")
    thread.join()
    os.close(end)
    os.close(ender)


def of(seen, address):
    """The next thing that is seen of an address."""
    while (sighting := seen.get(timeout=WAIT)).address != address:
        pass
    return sighting.liveness


def test_a_tensorflow_server_answers_on_one_connection_for_ever():
    """GRPC hangs up on clients that send too many PINGs, but not on these."""
    server = tf.distribute.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    with probing([address], interval_seconds=0.0) as seen:
        assert of(seen, address) is Liveness.ANSWERS
        connections = set(Http2Connection.open_descriptors)
        found = {of(seen, address) for _ in range(2000)}
        assert found == {Liveness.ANSWERS}
        assert len(connections) == 1
        assert connections == Http2Connection.open_descriptors


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (peers.answer, Liveness.ANSWERS),  # a new connection for each question
        (peers.stay_silent, Liveness.SILENT),
        (peers.speak_http1, Liveness.FOREIGN),
        (peers.hang_up, Liveness.FOREIGN),
    ],
)
def test_what_listens_is_told_apart_again_and_again(act, expected):
    with Peer(act) as peer, probing([peer.address], answer_seconds=0.5) as seen:
        assert [of(seen, peer.address) for _ in range(3)] == [expected] * 3


def test_what_does_not_listen_is_told_apart():
    refusing = peers.refusing_address()
    with probing([refusing, "no-such-host.invalid:1"]) as seen:
        assert of(seen, refusing) is Liveness.REFUSES
        assert of(seen, "no-such-host.invalid:1") is Liveness.UNKNOWN_HOST


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
    with probing([address]) as seen:
        assert of(seen, address) is Liveness.REFUSES
    ending.join()


def test_those_that_are_silent_delay_none_of_many():
    """Nor does a name service that hangs."""
    with (
        Peer(peers.stay_silent) as silent,
        answering(200) as addresses,
        probing([silent.address, *addresses], 0.1, WAIT) as seen,
    ):
        assert silent.asked.wait(WAIT)
        answers = dict.fromkeys(addresses, 0)
        while min(answers.values()) < 3:
            sighting = seen.get(timeout=WAIT)
            assert sighting.liveness is Liveness.ANSWERS
            answers[sighting.address] += 1


def test_one_thread_asks_however_many_there_are():
    before = set(threading.enumerate())  # of which those of other tests may end meanwhile
    with answering(100) as addresses, probing(addresses) as seen:
        for address in addresses:
            assert of(seen, address) is Liveness.ANSWERS
        assert len(set(threading.enumerate()) - before) == 2  # the servers' own too


def test_a_server_that_went_silent_on_a_kept_connection_is_seen():
    silence = threading.Event()

    def fall_silent(connection):
        peers.answer(connection)
        connection.recv(100)  # the acknowledgement of its settings
        silence.set()
        return True

    with Peer(fall_silent) as peer, probing([peer.address], answer_seconds=0.5) as seen:
        assert of(seen, peer.address) is Liveness.ANSWERS
        assert of(seen, peer.address) is Liveness.SILENT
        assert silence.is_set()


def test_a_task_that_moved_is_found_again(monkeypatch):
    """Its name means another address from then on; the old one is asked for it no more."""
    hosts, asked = {"moving-ps": "127.0.0.2"}, []

    def look_up(host, *args, **kwargs):
        asked.append(host)
        return REAL(hosts.get(host, host), *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(names_module, "LEAST_SECONDS", 0.0)
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(Peer(peers.answer, "127.0.0.2:0"))
        port = before.address.rsplit(":", 1)[1]
        seen = stack.enter_context(probing([f"moving-ps:{port}"], answer_seconds=1.0))
        assert of(seen, f"moving-ps:{port}") is Liveness.ANSWERS
        before.close()
        while of(seen, f"moving-ps:{port}") is not Liveness.REFUSES:
            pass
        hosts["moving-ps"] = "127.0.0.3"
        after = Peer(peers.answer, f"127.0.0.3:{port}")
        stack.enter_context(after)
        while of(seen, f"moving-ps:{port}") is not Liveness.ANSWERS:
            pass
        assert after.asked.is_set()
        assert "moving-ps" in asked


def test_tasks_that_answer_cost_the_name_service_one_lookup_each(monkeypatch):
    asked = []

    def look_up(host, *args, **kwargs):
        asked.append(host)
        return REAL("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(names_module, "LEAST_SECONDS", 0.0)
    with answering(40) as addresses:
        named = [f"counted-{at.rsplit(':', 1)[1]}:{at.rsplit(':', 1)[1]}" for at in addresses]
        with probing(named) as seen:
            for _ in range(5):
                for address in named:
                    assert of(seen, address) is Liveness.ANSWERS
    asked = [host for host in asked if host.startswith("counted-")]  # not of tests before
    assert sorted(asked) == sorted(address.rsplit(":", 1)[0] for address in named)


def test_all_are_asked_at_once():
    with Peer(peers.answer) as peer:
        refusing = peers.refusing_address()
        assert ask_all([peer.address, refusing]) == {
            peer.address: Liveness.ANSWERS,
            refusing: Liveness.REFUSES,
        }
    assert ask_all([]) == {}
