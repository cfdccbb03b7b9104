"""A connection to a task's server that is kept, to ask it again and again for a sign of life."""

import concurrent.futures
import enum
import errno
import selectors
import socket
from collections.abc import Callable

from tfps.cluster.http2 import (
    ACK,
    PREFACE,
    SETTINGS,
    Frame,
    Frames,
    Http2Connection,
    NotHttp2Error,
    encoded,
)
from tfps.cluster.http2 import PING as PING_KIND
from tfps.cluster.liveness import PING, PONG, Liveness
from tfps.cluster.names import Endpoint, names

_QUESTION = Frame(SETTINGS)  # any number of them may be sent; PING is for a server to ration


class _State(enum.Enum):
    IDLE = enum.auto()
    RESOLVING = enum.auto()
    CONNECTING = enum.auto()
    ASKING_FIRST = enum.auto()  # on a connection that has never answered
    ASKING = enum.auto()


class ServerLine:
    """Asks one server; never waits, but says when it has something to go on with.

    A new connection for each question would cost the server 20 times the CPU, and leave the network
    with an ended connection for a minute each time. The first question is a PING; gRPC hangs up on
    a client that sends more than a few of them, so on a kept connection it is an empty SETTINGS,
    which the same threads of gRPC must acknowledge (RFC 9113, 6.5.3).
    """

    def __init__(
        self, address: str, selector: selectors.BaseSelector, wake: Callable[["ServerLine"], None]
    ):
        """Connects to nothing yet.

        Args:
            wake: Called, in any thread, with this line when its name has been looked up.
        """
        self.address = address
        self.questions = 0
        self._selector = selector
        self._wake = wake
        self._state = _State.IDLE
        self._socket: socket.socket | None = None
        self._lookup: concurrent.futures.Future[list[Endpoint]] | None = None
        self._endpoints: list[Endpoint] = []
        self._first = 0  # endpoint to begin with, counted on when one takes too long
        self._seen = Liveness.UNREACHABLE
        self._frames = Frames()
        self._owed = 0  # acknowledgements of SETTINGS
        self._was_cut_off = False  # the first connection for the open question

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self._state is not _State.IDLE

    def ask(self) -> Liveness | None:
        """Begins a question; returns the answer if it is known at once."""
        self.questions += 1
        return self._begin()

    def resolved(self) -> Liveness | None:
        """Goes on when a name has been looked up; returns the answer, if it is in."""
        assert self._lookup is not None
        if self._state is not _State.RESOLVING or not self._lookup.done():  # woken late
            return None
        return self._resolved(self._lookup)

    def proceed(self) -> Liveness | None:
        """Goes on when the socket is ready; returns the answer, if it is in."""
        return self._connected() if self._state is _State.CONNECTING else self._receive()

    def give_up(self) -> Liveness:
        """Ends a question whose time is up; returns what was seen."""
        seen = {
            _State.RESOLVING: Liveness.UNKNOWN_HOST,
            _State.CONNECTING: Liveness.UNREACHABLE,
        }.get(self._state, Liveness.SILENT)
        self._first += self._state is _State.CONNECTING
        return self._end(seen)

    def close(self) -> None:
        """Ends the connection, if there is one."""
        if self._socket:
            self._selector.unregister(self._socket)
            Http2Connection.open_descriptors.discard(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _begin(self) -> Liveness | None:
        if self._socket:
            self._state = _State.ASKING
            self._owed += 1
            return self._send(encoded(_QUESTION))
        self._state = _State.RESOLVING
        self._lookup = names.ask(self.address)
        if self._lookup.done():
            return self._resolved(self._lookup)
        self._lookup.add_done_callback(lambda lookup: self._wake(self))
        return None

    def _resolved(self, lookup: concurrent.futures.Future[list[Endpoint]]) -> Liveness | None:
        if lookup.exception():
            return self._end(Liveness.UNKNOWN_HOST)
        found = lookup.result()
        first = self._first % len(found)
        self._endpoints = found[first:] + found[:first]
        return self._connect()

    def _connect(self) -> Liveness | None:
        """Begins to connect to the next endpoint that does not fail at once."""
        self._state = _State.CONNECTING
        while self._endpoints:
            family, place = self._endpoints.pop(0)
            try:
                made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError:
                self._seen = Liveness.UNREACHABLE
                continue
            error = made.connect_ex(place)
            if error in (0, errno.EINPROGRESS):
                self._socket = made
                Http2Connection.open_descriptors.add(made.fileno())
                self._selector.register(made, selectors.EVENT_WRITE, self)
                return None
            made.close()
            self._note(error)
        return self._end(self._seen)

    def _connected(self) -> Liveness | None:
        assert self._socket is not None
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
            self._note(error)
            return self._connect()
        self._selector.modify(self._socket, selectors.EVENT_READ, self)
        self._state, self._frames, self._owed = _State.ASKING_FIRST, Frames(), 1
        return self._send(PREFACE + encoded(Frame(SETTINGS), PING))

    def _note(self, error: int) -> None:
        is_refused = error == errno.ECONNREFUSED
        self._seen = Liveness.REFUSES if is_refused else Liveness.UNREACHABLE

    def _send(self, data: bytes) -> Liveness | None:
        assert self._socket is not None
        try:
            # A few bytes: a connection that does not take them whole is as good as broken.
            if self._socket.send(data) == len(data):
                return None
        except OSError:
            pass
        return self._broken()

    def _receive(self) -> Liveness | None:
        connection = self._socket
        assert connection is not None
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            return self._broken()
        self._frames.feed(data)
        seen = None
        try:
            while self._socket is connection and (frame := self._frames.next()):
                seen = self._take(frame) or seen
        except NotHttp2Error:
            return self._broken()
        return seen

    def _take(self, frame: Frame) -> Liveness | None:
        """Answers the server's own questions; returns what ours has ended in."""
        is_ack = bool(frame.flags & ACK)
        if frame.kind in (SETTINGS, PING_KIND) and not is_ack:
            payload = frame.payload if frame.kind == PING_KIND else b""
            return self._send(encoded(Frame(frame.kind, ACK, payload=payload)))
        if frame.kind == SETTINGS:
            self._owed -= 1
        is_answer = (self._state is _State.ASKING_FIRST and frame == PONG) or (
            self._state is _State.ASKING and frame.kind == SETTINGS and not self._owed
        )
        return self._end(Liveness.ANSWERS) if is_answer else None

    def _broken(self) -> Liveness | None:
        """What the end of the connection means: of a kept one, that another is to be tried."""
        self.close()
        names.doubt(self.address)  # it may have moved
        if self._state is _State.ASKING_FIRST:
            # A process that ends cuts off whom it has accepted, and from then on refuses.
            if self._was_cut_off:
                return self._end(Liveness.FOREIGN)
            self._was_cut_off = True
            return self._begin()
        return self._begin() if self._state is _State.ASKING else None

    def _end(self, seen: Liveness) -> Liveness:
        self.questions += 1
        self._state, self._was_cut_off = _State.IDLE, False
        if not seen.answers:
            self.close()
            names.doubt(self.address)
        return seen
