"""gRPC servers that answer `GetStatus` as TensorFlow's do and nothing else.

    python -m tests.answering_servers COUNT

It prints their addresses, one per line, and serves until its input ends.
"""

import contextlib
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from tests.project import ROOT

_SERVICE = "tensorflow.WorkerService"


def status(job: str = "worker", index: int = 0, incarnation: int = 1) -> bytes:
    """A `GetStatusResponse` with one device."""
    name = f"/job:{job}/replica:0/task:{index}/device:CPU:0".encode()
    device = b"\x0a" + bytes([len(name)]) + name + b"\x31" + struct.pack("<Q", incarnation)
    return b"\x0a" + bytes([len(device)]) + device


class AnsweringServers:
    """One server that listens at many ports of the loopback interface; a context manager.

    Attributes:
        addresses: `host:port` of each port.
        asked: Set when somebody has asked.
        askers: The other ends of the connections that somebody has asked on.
    """

    def __init__(
        self,
        addresses: Collection[str] = ("127.0.0.1:0",),
        response: bytes = status(),
        method: str = "GetStatus",
    ):
        self.asked = threading.Event()
        self.askers: set[str] = set()
        self._response = response
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        handlers = {method: grpc.unary_unary_rpc_method_handler(self._answer)}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, handlers),)
        )
        self.addresses = []
        for address in addresses:
            host = address.rpartition(":")[0]
            self.addresses.append(f"{host}:{self._server.add_insecure_port(address)}")

    @property
    def address(self) -> str:
        """The only one."""
        [address] = self.addresses
        return address

    def close(self) -> None:
        """Refuses connections from now on."""
        self._server.stop(5).wait()  # what was asked is answered

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, request: bytes, context: Any) -> bytes:
        self.askers.add(context.peer())
        self.asked.set()
        return self._response


@contextlib.contextmanager
def other_process(count: int = 1) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that serves, and its addresses."""
    command = [sys.executable, "-m", "tests.answering_servers", str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield process, [process.stdout.readline().strip() for _ in range(count)]
        finally:
            process.kill()


def main(argv: Sequence[str]) -> None:
    """Serves at as many ports as the argument says."""
    with AnsweringServers(["127.0.0.1:0"] * int(argv[1])) as servers:
        print("\n".join(servers.addresses), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv)
