"""What goes between tasks is counted by the kernel."""

import contextlib
import socket

from tfps.cluster.sockets import Traffic


@contextlib.contextmanager
def connected():
    """A connection to a port, from both ends, and the port's address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        with socket.create_connection(place) as client:
            accepted, _ = server.accept()
            with accepted:
                yield client, accepted, f"127.0.0.1:{place[1]}"


def send(source, target, size):
    source.sendall(b"x" * size)
    while size:
        size -= len(target.recv(1 << 16))


def test_bytes_are_counted_each_way_at_both_ends_of_a_connection():
    with connected() as (client, accepted, address):
        traffic = Traffic([address, "elsewhere:1"])
        before = traffic.count()
        send(client, accepted, 100_000)
        send(accepted, client, 7)
        after = traffic.count()
    # Both ends are this process: each byte is sent by one and received by the other.
    assert [now - then for now, then in zip(after, before, strict=True)] == [100_007, 100_007]


def test_a_connection_that_has_ended_stays_counted():
    with connected() as (client, accepted, address):
        traffic = Traffic([address])
        send(client, accepted, 1000)
        counted = traffic.count()
    assert counted[1] == 1000
    assert traffic.count() == counted


def test_other_connections_do_not_count():
    with connected() as (client, accepted, _):
        send(client, accepted, 1000)
        assert Traffic(["127.0.0.1:1"]).count() == (0, 0)
