import errno
import os
import resource
import socket
import struct
import subprocess
import sys
import threading

import pytest

from cloud.local.command import Ports
from tfps.errors import UserError

IP_LOCAL_PORT_RANGE = 51  # Linux 6.3 and later; Python has no name for it
SERVER = """
import sys
import tensorflow as tf
spec = tf.train.ClusterSpec({"ps": ["127.0.0.1:" + sys.argv[1]]})
server = tf.distribute.Server(spec, job_name="ps", task_index=0, protocol="grpc")
print("serving", flush=True)
sys.stdin.read()
"""


def bind_free_port(port_range=None):
    """A socket bound to any free port, as others ask for one."""
    other = socket.socket()
    if port_range:
        low, high = port_range
        other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", high << 16 | low))
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind(("127.0.0.1", 0))
    except OSError:
        other.close()
        raise
    return other


def listen(port):
    """A server as gRPC binds one, on every interface."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    server.listen()
    return server


def test_a_server_listens_on_a_held_port_again_and_again():
    with Ports(1) as ports:
        for _ in range(3):
            with (
                listen(ports.numbers[0]) as server,
                socket.create_connection(("127.0.0.1", ports.numbers[0]), 10) as client,
            ):
                accepted, _ = server.accept()
                accepted.close()
                assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", ports.numbers[0]), 10)


def test_nobody_who_asks_for_a_free_port_gets_a_held_one():
    with Ports(8) as ports, listen(ports.numbers[0]):
        taken = []

        def ask():
            held = [bind_free_port() for _ in range(300)]
            taken.extend(other.getsockname()[1] for other in held)
            for other in held:
                other.close()

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(taken) == 900
        assert not set(taken) & set(ports.numbers)


@pytest.mark.parametrize("is_served", [False, True])
def test_a_held_port_is_not_given_away_even_when_it_is_the_last(is_served):
    """The other process may choose from a range of one port: the held one."""
    with Ports(1) as ports:
        port = ports.numbers[0]
        server = listen(port) if is_served else None
        try:
            with pytest.raises(OSError, match=r"in use|not available") as refusal:
                bind_free_port((port, port)).close()
        finally:
            if server:
                server.close()
        # A kernel before 6.3 cannot be asked this way.
        assert refusal.value.errno in (errno.EADDRINUSE, errno.ENOPROTOOPT)


def test_many_reservations_at_once_are_disjoint():
    with Ports(200) as first, Ports(200) as second:
        assert len(set(first.numbers + second.numbers)) == 400


def test_close_gives_the_ports_back():
    ports = Ports(1)
    ports.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports.numbers[0]))


def test_too_many_ports_is_the_users_mistake():
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 50, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot reserve 100 free ports .*ulimit -n"):
            Ports(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_tensorflow_server_binds_held_ports():
    with Ports(2) as ports:
        servers = [
            subprocess.Popen(
                [sys.executable, "-c", SERVER, str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            )
            for port in ports.numbers
        ]
        try:
            for port, server in zip(ports.numbers, servers, strict=True):
                assert server.stdout.readline() == b"serving\n"
                socket.create_connection(("127.0.0.1", port), 10).close()
        finally:
            for server in servers:
                server.kill()
                server.communicate()
