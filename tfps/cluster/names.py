"""The network addresses of hosts: asked of the name service once, and again only when in doubt.

A thousand tasks that resolve each other's names at every look would ask a cluster's name service
thousands of times a second.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

# Between two lookups of one name, however often it is in doubt.
LEAST_SECONDS = 5.0
_MOST_LOOKUPS = 8  # at the same time
_GONE = (socket.EAI_NONAME, socket.EAI_NODATA)

Endpoint = tuple[socket.AddressFamily, tuple[Any, ...]]  # a family, and what `connect` takes
_Found = Sequence[Endpoint]


@dataclasses.dataclass
class _Name:
    """What is known of one host.

    Attributes:
        lookup: The last one; holds what was found once it is done.
        asked: When it began, on the monotonic clock.
    """

    lookup: concurrent.futures.Future[_Found]
    asked: float
    known: _Found = ()


class Names:
    """Looks names up in threads of its own, since a name service may take long to answer."""

    def __init__(self) -> None:
        self._names: dict[str, _Name] = {}
        self._waiting: collections.deque[tuple[str, _Name]] = collections.deque()
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, address: str) -> concurrent.futures.Future[list[Endpoint]]:
        """Where a task is, as far as that is known by now.

        Returns:
            Done at once where the host's name was looked up before; it holds the endpoints, or the
            `socket.gaierror` of a name that there is not.
        """
        host, port = address.rsplit(":", 1)
        host = host.strip("[]")
        answer: concurrent.futures.Future[list[Endpoint]] = concurrent.futures.Future()
        with self._lock:
            name = self._names.get(host) or self._look_up(host)
            found = name.known

        def give(lookup: concurrent.futures.Future[_Found]) -> None:
            error = lookup.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(_at_port(lookup.result(), int(port)))

        if found:
            answer.set_result(_at_port(found, int(port)))
        else:
            name.lookup.add_done_callback(give)
        return answer

    def find(self, address: str, limit_seconds: float) -> list[Endpoint]:
        """Where a task is, waited for."""
        try:
            return self.ask(address).result(limit_seconds)
        except TimeoutError:
            seconds = f"the name service did not answer within {limit_seconds:.0f} s"
            raise socket.gaierror(socket.EAI_AGAIN, seconds) from None

    def doubt(self, address: str) -> None:
        """Says that no connection to a task came about, or one has ended: it may have moved.

        Its name is looked up again, unless that was done less than `LEAST_SECONDS` ago. Until the
        name service has answered, what it said last holds.
        """
        host = address.rsplit(":", 1)[0].strip("[]")
        with self._lock:
            name = self._names.get(host)
            if name is None or not name.lookup.done() or _is_number(host):
                return
            if time.monotonic() - name.asked >= LEAST_SECONDS:
                self._look_up(host, name.known)

    def _look_up(self, host: str, known: _Found = ()) -> _Name:
        name = _Name(concurrent.futures.Future(), time.monotonic(), known)
        self._names[host] = name
        if _is_number(host):
            self._answer(host, name)
            return name
        self._waiting.append((host, name))
        if self._threads < _MOST_LOOKUPS:
            self._threads += 1
            threading.Thread(target=self._run, name="names", daemon=True).start()
        return name

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                host, name = self._waiting.popleft()
            self._answer(host, name)

    def _answer(self, host: str, name: _Name) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # no name can be so
            name.known = ()
            name.lookup.set_exception(socket.gaierror(socket.EAI_NONAME, str(error)))
            return
        except OSError as error:
            # A name service that is away for a while does not make a task unknown.
            if name.known and error.errno not in _GONE:
                name.lookup.set_result(name.known)
            else:
                name.known = ()
                name.lookup.set_exception(error)
            return
        name.known = [(family, place) for family, _, _, _, place in found]
        name.lookup.set_result(name.known)


def _at_port(found: _Found, port: int) -> list[Endpoint]:
    return [(family, (place[0], port, *place[2:])) for family, place in found]


def _is_number(host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return True
    return False


# Of this process.
names = Names()
