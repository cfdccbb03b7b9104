"""Shows how far the training is: a bar on a terminal, log lines elsewhere."""

import logging
import shutil
import time
from typing import TYPE_CHECKING, TextIO

from tqdm import tqdm

if TYPE_CHECKING:  # its module loads TensorFlow, before which stderr is to be set up
    from tfps.coordinator.progress import Progress

_BAR_SECONDS = 0.5
_ERASE_LINE = "\x1b[2K"
_log = logging.getLogger(__name__)


class ProgressDisplay:
    """Draws a bar or writes lines, seldom enough not to matter.

    A bar's text ends in a carriage return: whoever relays the output to a terminal keeps it as the
    last line.
    """

    def __init__(self, stream: TextIO, bar: bool, line_seconds: float = 10.0):
        """Shows nothing yet.

        Args:
            stream: Where to.
            bar: Whether a bar is drawn, not lines.
            line_seconds: Between one line and the next.
        """
        self._stream = stream
        self._bar = bar
        self._seconds = _BAR_SECONDS if bar else line_seconds
        self._began: float | None = None
        self._shown = 0.0
        self._loss = ""
        self._is_on_screen = False

    def show(self, progress: "Progress", before: int, records: int, epochs: int) -> None:
        """Shows progress, unless it was shown a moment ago.

        Args:
            progress: How far the training is.
            before: Records of the epochs before this one.
            records: Records of this epoch.
            epochs: Number of epochs.
        """
        now = time.monotonic()
        self._began = self._began or now
        if progress.loss is not None:
            self._loss = f", loss {progress.loss:.4f}"
        if now - self._shown < self._seconds:
            return
        self._shown = now
        title = f"epoch {progress.epoch + 1}/{epochs}"
        done = progress.examples - before
        if self._bar:
            self._draw(title, done, records, progress.examples_per_second, now - self._began)
        elif progress.examples:
            _log.info(
                "%s: %s of %s records, %s examples/s%s",
                title,
                f"{done:,}",
                f"{records:,}",
                f"{progress.examples_per_second:,.0f}",
                self._loss,
            )

    def clear(self) -> None:
        """Takes the bar off the screen, for a line to be written."""
        if self._is_on_screen and self._stream.isatty():
            self._stream.write(_ERASE_LINE)
        self._is_on_screen = False

    def hide(self) -> None:
        """Takes the bar off the screen until it is shown again."""
        if self._is_on_screen:
            self._stream.write(f"{_ERASE_LINE if self._stream.isatty() else ' '}\r")
            self._stream.flush()
        self._is_on_screen = False

    def _draw(self, title: str, done: int, total: int, rate: float, elapsed: float) -> None:
        text = tqdm.format_meter(
            done,
            total,
            elapsed,
            ncols=shutil.get_terminal_size().columns - 1,
            prefix=title,
            unit=" examples",
            unit_scale=True,
            rate=rate or None,
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} {rate_fmt}{postfix}",
            postfix=self._loss.removeprefix(", "),
        )
        self.clear()
        self._stream.write(f"{text}\r")
        self._stream.flush()
        self._is_on_screen = True
