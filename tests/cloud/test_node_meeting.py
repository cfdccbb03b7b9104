"""What launchers of N machines make of one that vanishes, or does not answer."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from cloud.local.process import Events
from cloud.local.supervisor import Supervisor
from cloud.node.meeting import FirstMachine, Hello, OtherMachine, Peer
from cloud.node.places import Place
from tfps.job_dir.size import Size

HELLO = Hello(1, "same", Size(1, 1), {"worker": [5000], "ps": [5001]})
CLUSTER = {"cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}}
PLACE = Place(1, 2, "127.0.0.1")


class Ended(list[Any]):
    """A supervisor that notes its calls."""

    def fail(self, code: int, why: str) -> None:
        self.append((code, why))


@pytest.fixture(name="listener")
def listener_fixture() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def is_kept_alive(connection: socket.socket) -> bool:
    return bool(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    )


def met(listener: socket.socket, limit_seconds: float) -> tuple[OtherMachine, Peer]:
    """A machine that has met the first, and the first's end of their connection."""
    other = OtherMachine(PLACE, listener.getsockname()[1], lambda text: None, limit_seconds)
    found: list[Peer] = []

    def answer() -> None:
        found.append(Peer(listener.accept()[0]))
        found[0].receive()
        found[0].send(CLUSTER)

    thread = threading.Thread(target=answer)
    thread.start()
    other.meet(HELLO)
    thread.join()
    return other, found[0]


def test_both_ends_notice_a_machine_that_vanishes_without_a_packet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = FirstMachine(Place(0, 2, "127.0.0.1"), port, lambda text: None, 30, lambda: Size(1, 1))
    other = OtherMachine(PLACE, port, lambda text: None, 30)
    thread = threading.Thread(target=other.meet, args=(HELLO,))
    thread.start()
    first.meet(Hello(0, "same", Size(1, 1), {"chief": [5002]}))
    thread.join()
    [peer] = first._peers.values()
    assert other._peer
    assert is_kept_alive(peer.connection)
    assert is_kept_alive(other._peer.connection)
    other.tell_end(0)
    first.tell_end(0)


def test_a_launcher_stays_awake_while_the_first_machine_does_not_answer(
    listener: socket.socket,
) -> None:
    other, peer = met(listener, limit_seconds=1)
    ended = Ended()
    with Events([], lambda number: None) as events:
        other.begin(events, cast("Supervisor", ended))
        peer.close()  # from here on nobody takes connections, but the kernel opens them
        began = time.monotonic()
        events.wait()
        assert time.monotonic() - began < 5
        while not ended:
            events.wait()
    assert ended[0][0] == 3
    assert "has been gone for 1 s" in ended[0][1]
