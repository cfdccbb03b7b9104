"""Ports for tasks that a test starts one by one."""

import json
import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(name="ports")
def ports_fixture() -> Iterator[list[socket.socket]]:
    """Three sockets whose ports nobody else takes, refusing connections until they listen."""
    sockets = [socket.socket() for _ in range(3)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    yield sockets
    for each in sockets:
        each.close()


def tf_config(ports: list[socket.socket], job: str) -> dict[str, str]:
    chief, worker, ps = ([f"127.0.0.1:{each.getsockname()[1]}"] for each in ports)
    cluster = {"chief": chief, "worker": worker, "ps": ps}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})}
