"""The floor: a ps and workers that move the bytes of a step over bare sockets, and compute nothing.

A worker sends the ids of its distinct rows, gets the rows with the dense parameters, sends their
gradients, and gets a byte that says so: four messages a step, as few as it takes.
"""

import argparse
import itertools
import pathlib
import socket
import threading

import numpy as np

from benchmarks import models
from benchmarks.peers.progress_lines import ProgressLines

_ID_BYTES, _VALUE_BYTES = 4, 4  # int32, float32
_MEASURED_BATCHES = 50


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Moves bytes until this process is ended."""
    host, _, port = cluster["ps"][0].rpartition(":")
    rows = _distinct_rows(flags)
    pairs = (pair for chain in models.CHAINS[flags.model] for pair in itertools.pairwise(chain))
    dense = sum((wide + 1) * narrow for wide, narrow in pairs)
    ids, values = rows * _ID_BYTES, (rows * models.DIM + dense) * _VALUE_BYTES
    if job == "worker":
        _exchange(connected(host, int(port)), bytes(ids), bytes(values))
    listening = socket.create_server((host, int(port)))
    lines, counted = ProgressLines(), _Counted(flags.batch)
    for _ in range(flags.workers):
        connection, _ = listening.accept()
        arguments = (connection, ids, values, counted, lines)
        threading.Thread(target=_answer, args=arguments, daemon=True).start()
    threading.Event().wait()


class _Counted:
    """Examples of all workers."""

    def __init__(self, batch: int):
        self._batch = batch
        self._examples = 0
        self._lock = threading.Lock()

    def step(self) -> int:
        with self._lock:
            self._examples += self._batch
            return self._examples


def _distinct_rows(flags: argparse.Namespace) -> int:
    """Mean number of distinct rows in a batch."""
    path = pathlib.Path(flags.data, "arrays", "categoricals.npy")
    ids = np.load(path, mmap_mode="r")[: _MEASURED_BATCHES * flags.batch]
    fused = models.row_numbers(flags.model, flags.rows, is_fused=True)(ids)
    parts = [fused[k : k + flags.batch] for k in range(0, len(fused), flags.batch)]
    return round(sum(np.unique(part).size for part in parts) / len(parts))


def connected(host: str, port: int) -> socket.socket:
    """A connection to the ps, once it listens."""
    while True:
        try:
            connection = socket.create_connection((host, port))
        except ConnectionRefusedError:
            threading.Event().wait(0.1)  # the ps begins at the same time
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _exchange(connection: socket.socket, ids: bytes, values: bytes) -> None:
    """A worker's steps."""
    buffer = memoryview(bytearray(len(values)))
    while True:
        connection.sendall(ids)
        _receive(connection, buffer)
        connection.sendall(values)
        _receive(connection, buffer[:1])


def _answer(
    connection: socket.socket, ids: int, values: int, counted: _Counted, lines: ProgressLines
) -> None:
    """What the ps does for one worker."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer, sent = memoryview(bytearray(max(ids, values))), bytes(values)
    while True:
        _receive(connection, buffer[:ids])
        connection.sendall(sent)
        _receive(connection, buffer[:values])
        connection.sendall(b"k")
        lines.show(counted.step(), 0.0)


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    """Fills a buffer."""
    while buffer:
        received = connection.recv_into(buffer)
        if not received:
            raise SystemExit("the other side has gone")
        buffer = buffer[received:]
