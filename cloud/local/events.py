"""Waiting for output, signals and points in time in one thread."""

import heapq
import itertools
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable


class Events:
    """Calls back when a file descriptor has data, a signal has come or a time is reached.

    A context manager for the main thread; it puts the former signal handlers back.
    """

    def __init__(self, signals: Iterable[signal.Signals], on_signal: Callable[[int], None]):
        self._on_signal = on_signal
        self._selector = selectors.DefaultSelector()
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_signals)
        self._former_fd = signal.set_wakeup_fd(self._waker.fileno())
        self._former = {number: signal.signal(number, _noted) for number in signals}

    def watch(self, descriptor: int, on_data: Callable[[], None]) -> None:
        """Calls `on_data` whenever `descriptor` can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, on_data)

    def forget(self, descriptor: int) -> None:
        """Stops watching `descriptor`, if it is watched."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls `action` once, `seconds` from now."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action))

    def wait(self) -> None:
        """Waits for the next event and makes the calls that are due."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            if self._selector.get_map().get(key.fd) is key:  # not forgotten by a call before it
                key.data()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def _read_signals(self) -> None:
        for number in self._wake.recv(4096):
            self._on_signal(number)


def _noted(number: int, frame: object) -> None:
    """Python's half of a handler; the signal is read from the wakeup descriptor."""
