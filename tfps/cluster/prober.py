"""Asks many servers for signs of life, in one thread."""

import collections
import contextlib
import heapq
import itertools
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from tfps.cluster.liveness import ANSWER_SECONDS, Liveness
from tfps.cluster.server_line import ServerLine

PROBE_SECONDS = 1.0
_SOON_SECONDS = 0.2  # in which `ask_all` sends its questions


class Sighting(NamedTuple):
    """What one question to a server ended in.

    Attributes:
        since: When it was asked, on the monotonic clock, which all of a machine's processes share.
        when: The same in seconds since the epoch.
    """

    address: str
    liveness: Liveness
    since: float
    when: float


class Prober:
    """Asks each server, waits for its answer, and asks it again after an interval.

    The questions are spread over the interval. One that is not answered delays no other.

    Attributes:
        heard: When it last had told all that it knew, on the monotonic clock.
    """

    def __init__(
        self,
        addresses: Collection[str],
        interval_seconds: float = PROBE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ):
        self._addresses = list(addresses)
        self._interval = interval_seconds
        self._limit = answer_seconds
        self._turns: list[tuple[float, int, int, ServerLine]] = []
        self._numbers = itertools.count()
        self._asked: dict[ServerLine, tuple[float, float]] = {}
        self._resolved: collections.deque[ServerLine] = collections.deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.heard = 0.0

    def start(self, tell: Callable[[Sighting], None]) -> None:
        """Begins to ask, unless it has or there is nobody to ask.

        Args:
            tell: Called with every answer, or with what else was seen, in a thread of its own.
        """
        if self._thread is not None or not self._addresses:
            return
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends all connections; may be called by `tell` too."""
        self._stop.set()
        if self._thread is not None:
            self._ring()
            if self._thread is not threading.current_thread():
                self._thread.join()

    def _wake(self, line: ServerLine) -> None:
        self._resolved.append(line)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it has ended, or the bell rings already
            self._button.send(b"x")

    def _run(self) -> None:
        lines = [ServerLine(address, self._selector, self._wake) for address in self._addresses]
        began = time.monotonic()
        for index, line in enumerate(lines):
            self._plan(began + self._interval * index / len(lines), line)
        try:
            while not self._stop.is_set():
                self._turn()
        finally:
            for line in lines:
                line.close()
            self._selector.close()
            self._bell.close()
            self._button.close()

    def _turn(self) -> None:
        """Takes what has come; then begins and gives up what was due before that."""
        # What comes is taken first: it may be this process that was stopped.
        now = time.monotonic()
        until_next = self._turns[0][0] - now if self._turns else None
        for key, _ in self._selector.select(until_next and max(0.0, until_next)):
            if key.fileobj is self._bell:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(1 << 12)
            else:
                self._note(key.data, key.data.proceed())
        while self._resolved:
            line = self._resolved.popleft()
            self._note(line, line.resolved())
        while self._turns and self._turns[0][0] <= now:
            *_, question, line = heapq.heappop(self._turns)
            if question != line.questions:  # it was answered in time
                continue
            if line.is_asking:
                self._note(line, line.give_up())
            else:
                self._asked[line] = time.monotonic(), time.time()
                self._plan(self._asked[line][0] + self._limit, line, question + 1)
                self._note(line, line.ask())
        self.heard = time.monotonic()

    def _note(self, line: ServerLine, seen: Liveness | None) -> None:
        if seen is not None and not self._stop.is_set():
            self._plan(time.monotonic() + self._interval, line)
            self._tell(Sighting(line.address, seen, *self._asked[line]))

    def _plan(self, when: float, line: ServerLine, question: int | None = None) -> None:
        """Has a line asked, or its question given up, at a time."""
        question = line.questions if question is None else question
        heapq.heappush(self._turns, (when, next(self._numbers), question, line))


def ask_all(addresses: Collection[str]) -> dict[str, Liveness]:
    """Asks each server once, all at the same time.

    Returns:
        What was seen, by address, after `ANSWER_SECONDS` at most.
    """
    seen: dict[str, Liveness] = {}
    are_seen = threading.Event()

    def note(sighting: Sighting) -> None:
        seen.setdefault(sighting.address, sighting.liveness)
        if len(seen) == len(addresses):
            are_seen.set()

    prober = Prober(addresses, _SOON_SECONDS)
    prober.start(note)
    if addresses:
        are_seen.wait()  # each question has its own limit
    prober.stop()
    return seen
