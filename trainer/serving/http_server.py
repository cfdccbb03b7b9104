"""HTTP, with limits on all that a client can make a server hold or wait for."""

import contextlib
import dataclasses
import errno
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from typing import Any

from tfps.errors import UserError
from trainer.serving import answer_text
from trainer.serving.model_api import Answer

_BACKLOG = 512  # connections that the system holds until they are accepted
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client may take.

    Attributes:
        max_body: Bytes of a request's body.
        read_seconds: In which a request must have come, and its answer be taken.
        max_connections: At once; each has a thread.
    """

    max_body: int
    read_seconds: float
    idle_seconds: float
    max_connections: int


Answerer = Callable[[str, str, bytes], Answer]  # of a method, a path and a body


class LimitedServer(ThreadingHTTPServer):
    """A server whose connections each have a thread, up to a limit."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    answer: Answerer

    def __init__(self, address: str, port: int, handler: Any, limits: Limits):
        """Takes the port, and lets nobody connect yet.

        Args:
            port: To bind; 0 for any that is free.
        """
        self.limits = limits
        self._free = threading.Semaphore(limits.max_connections)
        self._busy = 0
        self._changed = threading.Condition()
        try:
            found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
            self.address_family = found[0][0]
            bound = str(found[0][4][0]), port
            super().__init__(bound, handler, bind_and_activate=False)
            self.server_bind()
        except OSError as error:
            raise UserError(_cannot_bind(address, port, error)) from None

    def begin(self, answer: Answerer) -> None:
        """Answers requests, in threads of its own."""
        self.answer = answer
        self.server_activate()
        threading.Thread(target=self.serve_forever, name="connections", daemon=True).start()

    def url(self) -> str:
        """Where it is asked, with a slash behind."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def server_bind(self) -> None:
        """Binds; unlike its ancestor it asks no name server who it is."""
        socketserver.TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a connection a thread, or refuses it where all are taken."""
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system has no thread for it
                self._free.release()
                raise
            return
        text = answer_text.error_text(
            f"this server has {self.limits.max_connections} connections, and takes no more"
        ).encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            request.settimeout(0)  # it has room for so little, or it is not to be waited for
            request.sendall(head.encode() + text)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers a connection's requests."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs what went wrong with a connection."""
        _log.warning("a connection of %s broke off", client_address[0], exc_info=True)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """A block in which a request is answered, for which an end of the server waits."""
        with self._changed:
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def end(self, seconds: float) -> None:
        """Takes no more connections, and waits for the answers that are being given."""
        self.shutdown()
        self.server_close()
        with self._changed:
            if not self._changed.wait_for(lambda: not self._busy, seconds):
                _log.warning("%d requests are not answered after %g s", self._busy, seconds)


def _cannot_bind(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port={port} of {address} is taken; name another (0 for any that is free)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port={port} is not for this user ({error.strerror}); name one above 1023"
    return f"--address={address} cannot be bound ({error.strerror}); name one of this machine"
