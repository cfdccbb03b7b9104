"""Keeps what tfps says apart from TensorFlow's own noise."""

import logging
import os
import sys
from typing import TextIO

from tfps.errors import UserError
from trainer.console.progress_display import ProgressDisplay

_FORMAT = "%(asctime)s %(message)s"
_OWN = ("tfps", "trainer", "configs")


class _AboveTheView(logging.StreamHandler):
    def __init__(self, stream: TextIO, display: ProgressDisplay):
        super().__init__(stream)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        with self._display.above():
            super().emit(record)


def redirect_noise(path: str) -> None:
    """Sends what native code writes to stderr to a file; Python's own stderr stays.

    Call before TensorFlow is loaded.
    """
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

    Args:
        progress: `live`, `lines`, or `auto`: a live view if stderr is a terminal.
        formatter: Makes lines for programs of all records; None for lines for people.
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
