import contextlib
import socket
import threading
import time
import uuid

import pytest

from tests.answering_servers import other_process
from tfps.cluster import sockets
from tfps.cluster.liveness import kept_probe
from tfps.cluster.sockets import Connections, Traffic, keep_alive, start_keep_alive


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def pair(request):
    """A connection to a listener, as a client that uses either family makes it."""
    host = "::ffff:127.0.0.1" if request.param == socket.AF_INET6 else "127.0.0.1"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        client = stack.enter_context(socket.socket(request.param))
        client.settimeout(5)
        client.connect((host, port))
        yield client, stack.enter_context(listener.accept()[0]), f"localhost:{port}"


def test_connections_are_found_by_their_peer(pair):
    client, server, address = pair
    with socket.create_server(("127.0.0.1", 0)) as other:
        unused = f"127.0.0.1:{other.getsockname()[1]}"
        found = Connections([unused, "no-such-host.invalid:1", address]).open_now()
        [(place, connection)] = [(place, each.getsockname()) for place, each in found]
    assert (place, connection) == (address, client.getsockname())
    back = f"127.0.0.1:{client.getsockname()[1]}"  # the same connection, from its other end
    assert [each.getsockname() for _, each in Connections([back]).open_now()] == [
        server.getsockname()
    ]
    server.sendall(b"x")  # the handles are closed, the connection is not
    assert client.recv(1) == b"x"


def test_those_that_ask_for_a_sign_of_life_are_left_out():
    """They are neither broken nor counted."""
    with other_process() as (_, [address]), kept_probe(address) as ask:
        assert ask().answers
        assert list(Connections([address]).open_now()) == []
        assert Traffic([address]).count() == (0, 0)


def test_keep_alive_lets_the_kernel_find_lost_packets(pair):
    client, server, address = pair
    for _, connection in Connections([address]).open_now():
        keep_alive(connection)
    options = {
        name: client.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    }
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert options == {
        "TCP_KEEPIDLE": 10,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 25_000,
    }
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_keeping_connections_alive_asks_no_name_service(pair, monkeypatch):
    """A worker knows its connections to ps by the ports alone."""
    client, _, address = pair
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args, **kwargs: asked.append(host))
    ports = {int(address.rsplit(":", 1)[1])}
    start_keep_alive([f"no-such-ps.invalid:{port}" for port in ports])
    deadline = time.monotonic() + 20
    while not client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert asked == []


def test_a_connection_to_a_task_that_moved_is_found(pair, monkeypatch):
    """Its name is looked up again once there is a connection to a place that nobody is known at."""
    real, (client, _, address) = socket.getaddrinfo, pair
    place, port, asked = "127.0.0.9", address.rsplit(":", 1)[1], []

    def look_up(host, *args, **kwargs):
        asked.append(host)
        return real(place, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(sockets, "_LOOKUP_SECONDS", 0.0)
    before = set(threading.enumerate())
    moved = f"moved-{uuid.uuid4()}:{port}"
    connections = Connections([moved])
    assert list(connections.open_now()) == []
    place = "127.0.0.1"
    deadline = time.monotonic() + 20
    while not (found := [each.getsockname() for _, each in connections.open_now()]):
        assert time.monotonic() < deadline
    assert found == [client.getsockname()]
    for thread in set(threading.enumerate()) - before:  # a look may have begun one more lookup
        thread.join()
    times = len(asked)
    assert [at for at, _ in connections.open_now()] == [moved]
    assert len(asked) == times  # it is known now
