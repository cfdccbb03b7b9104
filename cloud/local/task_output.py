"""The tasks' output on the launcher's own, one whole line at a time."""

import os
import re
import select
import sys
import unicodedata
from collections.abc import Sequence
from typing import Self

from tfps.live_view.status import RunStatus, parse
from tfps.live_view.view import LiveBlock

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|.)?")
_PASSED_ON = re.compile(rb"\[(worker \d+)\] ")
_LONGEST = 1 << 16  # bytes of one line; a longer one is broken
_USUAL_SIZE = 80, 24  # columns and lines


class TaskOutput:
    """Prints lines with the name of their task in front.

    Text that a task ends with a carriage return instead of a newline is a transient status: how far
    a run is, as its chief reports it, or any text, such as a bar. A terminal shows the latest one
    below the lines; elsewhere it is dropped.
    """

    def __init__(self, descriptor: int, is_terminal: bool, has_colour: bool):
        self.is_broken = False  # the output cannot be written: a closed pipe or terminal
        self._descriptor = descriptor
        self._is_terminal = is_terminal
        self._has_colour = has_colour
        self._names: list[str] = []
        self._pending: dict[str, bytes] = {}
        self._block = LiveBlock()
        self._showing = ""  # the task whose status it is
        self._returned: dict[str, bytes] = {}  # text that a carriage return has just ended

    @classmethod
    def on_stdout(cls) -> Self:
        """What prints to this process's own output."""
        is_terminal = sys.stdout.isatty()
        has_colour = is_terminal and "NO_COLOR" not in os.environ
        return cls(sys.stdout.fileno(), is_terminal, has_colour)

    def feed(self, name: str, data: bytes) -> None:
        """Takes the next bytes of a task, cut anywhere, and prints its whole lines."""
        parts = re.split(rb"([\r\n])", self._pending.pop(name, b"") + data)
        for text, end in zip(parts[0::2], parts[1::2], strict=False):
            if end == b"\r":
                self._take_status(name, text)
                self._returned[name] = text
            else:
                self._end_line(name, text)
        rest = parts[-1]
        if len(rest) > _LONGEST:
            self._end_line(name, rest)
        elif rest:
            self._pending[name] = rest

    def finish(self, name: str) -> None:
        """Prints what a task left without an end of line, and takes its status away."""
        self._returned.pop(name, None)
        if rest := self._pending.pop(name, b""):
            self._end_line(name, rest)
        if self._showing == name:
            self.hide()

    def line(self, name: str, text: str) -> None:
        self._write(self._block.below(f"{self._prefix(name)}{text}\n"))

    def show(self, name: str, status: RunStatus) -> None:
        """Shows how far a run is: below the lines of a terminal, as a line elsewhere."""
        if self._is_terminal:
            from tfps.live_view import view  # loaded here: most outputs are no terminals

            self._place(name, view.draw(status, *self._size(), self._has_colour))
        else:
            self.line(name, status.line)

    def hide(self) -> None:
        """Takes the status off the terminal, until there is another."""
        self._place("", ())

    def _end_line(self, name: str, text: bytes) -> None:
        returned = self._returned.pop(name, None)
        if not text and returned is not None:  # "text\r\n" is a line like any other
            text = returned
            if self._showing == name:
                self.hide()
        other = _PASSED_ON.match(text)
        if other:  # the chief passes on what the worker next to it writes
            name, text = other[1].decode(), text[other.end() :]
        self.line(name, text.decode("utf-8", "backslashreplace"))

    def _take_status(self, name: str, text: bytes) -> None:
        """Makes `text` the status; blank text takes it away."""
        if not self._is_terminal:
            return
        decoded = text.decode("utf-8", "backslashreplace")
        if status := parse(decoded):
            self.show(name, status)
            return
        clean = "".join(c for c in _ESCAPE.sub("", decoded).rstrip() if c.isprintable())
        self._place(name, [self._cut(name, clean)] if clean else ())

    def _place(self, name: str, lines: Sequence[str]) -> None:
        self._showing = name
        self._write(self._block.replace(lines))

    def _cut(self, name: str, text: str) -> str:
        """A line that fills less than one row: a second row could not be erased."""
        room = self._size().columns - 1 - len(f"[{name}] ")
        for place, character in enumerate(text):
            room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if room < 0:
                text = text[:place]
                break
        return f"{self._prefix(name)}{text}"

    def _size(self) -> os.terminal_size:
        """The terminal's; 80 columns and 24 lines for one that does not know them, or is gone."""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return os.terminal_size(_USUAL_SIZE)
        return os.terminal_size((size.columns or _USUAL_SIZE[0], size.lines or _USUAL_SIZE[1]))

    def _prefix(self, name: str) -> str:
        if not self._has_colour:
            return f"[{name}] "
        if name not in self._names:
            self._names.append(name)
        colour = _COLOURS[self._names.index(name) % len(_COLOURS)]
        return f"\x1b[{colour}m[{name}]\x1b[0m "

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data and not self.is_broken:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # someone else made the shared output non-blocking
                writable = select.poll()
                writable.register(self._descriptor, select.POLLOUT)
                writable.poll()
            except OSError:  # the launcher reads `is_broken` and ends the run
                self.is_broken = True
