"""Keeps what tfps says apart from TensorFlow's own noise."""

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from tfps.errors import UserError
from tfps.live_view.status import RunStatus
from tfps.live_view.view import LiveBlock

_LIVE_SECONDS = 1.0  # a drawing takes 3 ms of CPU
_log = logging.getLogger(__name__)
_FORMAT = "%(asctime)s %(message)s"
_OWN = ("tfps", "trainer", "configs")


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
        self._has_reported = False  # whether whoever relays the output has a status
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
            elif self._has_reported:
                self._write(" \r")
            self._has_reported = False

    def _draw(self, status: RunStatus) -> None:
        if not self._stream.isatty():
            self._has_reported = True
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


class _AboveTheView(logging.StreamHandler):
    def __init__(self, stream: TextIO, display: ProgressDisplay):
        super().__init__(stream)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        with self._display.above():
            super().emit(record)


def redirect_noise(path: str) -> None:
    """Sends native code's stderr to a file, not Python's; call before TensorFlow is loaded."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise UserError(
            f"the log {path} cannot be written ({error.strerror}); name another with "
            "--tensorflow_log"
        ) from None
    sys.stderr.flush()
    terminal = os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace")


def start_logging(
    progress: str, line_seconds: float, formatter: logging.Formatter | None = None
) -> ProgressDisplay:
    """Sends tfps's log lines to Python's stderr, everybody else's to the native one.

    Progress is `live`, `lines`, or `auto`: live if stderr is a terminal. A formatter makes lines
    for programs of all records; without one they are for people.
    """
    is_live = progress == "live" or (progress == "auto" and sys.stderr.isatty())
    display = ProgressDisplay(sys.stderr, is_live, line_seconds)
    own = _AboveTheView(sys.stderr, display)
    own.setFormatter(formatter or logging.Formatter(_FORMAT, "%H:%M:%S"))
    for name in _OWN:
        logger = logging.getLogger(name)
        logger.handlers = [own]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    native = logging.StreamHandler(os.fdopen(2, "w", buffering=1, closefd=False))
    others = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    native.setFormatter(formatter or others)
    root = logging.getLogger()
    root.handlers = [native]
    root.setLevel(logging.WARNING)
    sys.unraisablehook = _log_unraisable
    return display


def _log_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """TensorFlow's own objects fail to tidy up once a peer is lost: noise, not a message."""
    error = unraisable.exc_value or unraisable.exc_type()
    line = f"{type(error).__name__}: {error}".partition("\n")[0]
    logging.getLogger().error("ignored in %r: %s", unraisable.object, line)


def quiet_tensorflow() -> None:
    """Lets TensorFlow's Python loggers write where its native code does; after it is loaded."""
    for name in ("tensorflow", "absl"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
