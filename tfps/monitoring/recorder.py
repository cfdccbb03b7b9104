"""Hands what happens in a run to those who keep it, without the run waiting for them."""

import contextlib
import functools
import json
import logging
import posixpath
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from tfps.errors import UserError, reason_of
from tfps.job_dir import JobDir
from tfps.monitoring import events
from tfps.monitoring.events import RunEvent
from tfps.storage import files
from tfps.storage.failures import StorageError
from tfps.storage.files import GrowingFile, writer_of

_SUFFIX = ".jsonl"
FLUSH_SECONDS = 30.0  # on gs:// each flush uploads files again
_URGENT_SECONDS = 1.0  # in which what comes together is written together
_END_SECONDS = 30.0
_log = logging.getLogger(__name__)
Source = Callable[[], Iterable[RunEvent]]


class RunHistory:
    """What one chief adds to the history of its job."""

    name = "the history"

    def __init__(self, job_dir: JobDir, began: float):
        """The chief began at `began`, seconds since 1970: what later ones write comes after it."""
        chief = writer_of(began)
        self._file = GrowingFile(job_dir.history, lambda number: f"{chief}.{number:06d}{_SUFFIX}")

    def tell(self, event: RunEvent) -> None:
        self._file.append(f"{json.dumps(events.to_json(event))}\n".encode())

    def flush(self) -> None:
        self._file.flush()


def read(job_dir: JobDir) -> list[RunEvent]:
    """What happened in a job, in order; nothing if it keeps no history.

    The last line of a file may be one that is being written, or was when its chief was killed: it
    is left out.
    """
    try:
        names = files.names(job_dir.history)
    except FileNotFoundError:
        return []
    paths = (posixpath.join(job_dir.history, name) for name in names if name.endswith(_SUFFIX))
    return [event for path in paths for event in _events(path)]


def _events(path: str) -> Iterator[RunEvent]:
    *lines, _ = files.read(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            event = events.from_json(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}, line {number}, is damaged ({error}); delete the line, or the file"
            ) from None
        if event:
            yield event


class Watcher(Protocol):
    """Keeps what happens in a run; it is called in a thread of its own."""

    @property
    def name(self) -> str:
        """What it keeps, for messages: "the history"."""

    def tell(self, event: RunEvent) -> None:
        """Takes what happened."""

    def flush(self) -> None:
        """Brings what happened to where people look at it."""


class RunRecorder:
    """Reports all that happens to watchers, in its order.

    A watcher that fails is warned of, and keeps its events until it can write them: what is seen of
    a run never ends it. Before each flush, `sources` are asked for more events; they may take their
    time.
    """

    def __init__(
        self,
        watchers: Sequence[Watcher],
        sources: Sequence[Source] = (),
        flush_seconds: float = FLUSH_SECONDS,
    ):
        self._watchers = watchers
        self._sources = sources
        self._flush_seconds = flush_seconds
        self._events: queue.Queue[RunEvent | None] = queue.Queue()
        self._failing: set[tuple[object, str]] = set()
        self._thread = threading.Thread(target=self._listen, name="run-recorder", daemon=True)
        self._thread.start()

    def tell(self, event: RunEvent) -> None:
        """Takes what happened, and returns at once."""
        self._events.put(event)

    def close(self) -> None:
        """Writes everything, as far as that is possible in half a minute."""
        self._events.put(None)
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            _log.warning(
                "what was seen of the run at its end is not all written: it takes too long"
            )

    def _listen(self) -> None:
        is_open, due = True, time.monotonic() + self._flush_seconds
        while is_open:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=max(0.0, due - time.monotonic()))
                if event is None:
                    is_open = False
                else:
                    self._hand_on(event)
                    if event.is_urgent:
                        due = min(due, time.monotonic() + _URGENT_SECONDS)
            if is_open and time.monotonic() >= due:
                self._flush()
                due = time.monotonic() + self._flush_seconds
        self._flush()

    def _hand_on(self, event: RunEvent) -> None:
        for watcher in self._watchers:
            tell = functools.partial(watcher.tell, event)
            self._attempt((watcher, "tell"), watcher.name, tell)

    def _flush(self) -> None:
        for source in self._sources:
            self._attempt((source, "ask"), "what tasks take", functools.partial(self._take, source))
        for watcher in self._watchers:
            self._attempt((watcher, "flush"), watcher.name, watcher.flush)

    def _take(self, source: Source) -> None:
        for event in source():
            self._hand_on(event)

    def _attempt(self, what: tuple[object, str], name: str, work: Callable[[], None]) -> None:
        """Works, and warns once of what fails in a row; this thread is that of all watchers."""
        try:
            work()
        except Exception as error:
            if what not in self._failing:
                text = str(error) if isinstance(error, StorageError) else reason_of(error)
                _log.warning("%s of the run cannot be written for now: %s", name, text)
            self._failing.add(what)
        else:
            self._failing.discard(what)
