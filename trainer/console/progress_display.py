"""Shows how far the training is: a live view on a terminal, log lines elsewhere."""

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from tfps.live_view.status import RunStatus
from tfps.live_view.view import LiveBlock

_LIVE_SECONDS = 1.0  # a drawing takes 3 ms of CPU
_log = logging.getLogger(__name__)


class ProgressDisplay:
    """Draws a view or writes lines, seldom enough not to matter.

    Where the stream of a live view is no terminal, the status is told as a line that ends in a
    carriage return: whoever relays the output to a terminal draws it.
    """

    def __init__(self, stream: TextIO, is_live: bool, line_seconds: float = 10.0):
        self._stream = stream
        self._is_live = is_live
        self._seconds = _LIVE_SECONDS if is_live else line_seconds
        self._shown: float | None = None
        self._block = LiveBlock()
        self._is_told = False  # whether whoever relays the output has a status
        self._lock = threading.RLock()

    def show(self, status: Callable[[], RunStatus]) -> None:
        """Shows how far a run is, unless that was shown a moment ago."""
        now = time.monotonic()
        if self._shown is not None and now - self._shown < self._seconds:
            return
        self._shown = now
        found = status()
        if self._is_live:
            self._draw(found)
        elif found.records or found.epoch > 1:
            _log.info("%s", found.line, extra={"status": found.to_json()})

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """While it is open, lines may be written to the stream: the view stays below them."""
        with self._lock:
            self._stream.write(self._block.erased())
            try:
                yield
            finally:
                self._stream.write(self._block.drawn())
                self._stream.flush()

    def hide(self) -> None:
        """Takes the view off the screen until it is shown again."""
        with self._lock:
            if self._block.is_shown:
                self._write(self._block.replace(()))
            elif self._is_told:
                self._write(" \r")
            self._is_told = False

    def _draw(self, status: RunStatus) -> None:
        if not self._stream.isatty():
            self._is_told = True
            self._write(f"{status.to_text()}\r")
            return
        from tfps.live_view import view  # loaded here: most tasks draw nothing

        size = shutil.get_terminal_size()
        lines = view.draw(status, size.columns, size.lines, "NO_COLOR" not in os.environ)
        with self._lock:
            self._write(self._block.replace(lines))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
