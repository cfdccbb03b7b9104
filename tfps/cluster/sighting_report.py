"""Tells another process what is seen of tasks."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable

from tfps.cluster.monitor import Lookout
from tfps.cluster.prober import Sighting

LONGEST_REPORT = 1 << 16  # bytes of a message
_MOST_SIGHTINGS = 100  # in it; an address has at most some 270 bytes
_REPORT_SECONDS = 1.0


class SightingReport:
    """Sends what a lookout sees through a channel, and that it still looks, every second.

    An answer of a task that answered before is no news. Of each task only the newest sighting waits
    for a receiver that does not read.
    """

    def __init__(self, lookout: Lookout, channel: socket.socket):
        """Reports nothing yet.

        Args:
            channel: A socket of packets; each carries a JSON list of address, name of the
                `Liveness`, and the two times of a `Sighting`.
        """
        self._lookout = lookout
        self._channel = channel
        self._answer: set[str] = set()
        self._news: dict[str, Sighting] = {}
        self._lock = threading.Lock()
        self._has_news = threading.Event()

    @property
    def heard(self) -> float:
        return self._lookout.heard

    def start(self, tell: Callable[[Sighting], None]) -> None:
        """Begins; `tell` is called with everything that is seen."""

        def see(sighting: Sighting) -> None:
            self._note(sighting)
            tell(sighting)

        self._lookout.start(see)
        threading.Thread(target=self._run, name="report", daemon=True).start()

    def stop(self) -> None:
        """Ends the lookout; the channel's end ends the reports."""
        self._lookout.stop()

    def _note(self, sighting: Sighting) -> None:
        address = sighting.address
        with self._lock:
            if sighting.liveness.answers:
                if address in self._answer:
                    return
                self._answer.add(address)
            else:
                self._answer.discard(address)
            self._news[address] = sighting
        self._has_news.set()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the receiver has ended
            while True:
                self._has_news.wait(_REPORT_SECONDS)
                self._channel.sendall(json.dumps(self._taken()).encode())

    def _taken(self) -> list[tuple[str, str, float, float]]:
        with self._lock:
            taken = [self._news.pop(address) for address in list(self._news)[:_MOST_SIGHTINGS]]
            if not self._news:
                self._has_news.clear()
        return [(each.address, each.liveness.name, each.since, each.when) for each in taken]
