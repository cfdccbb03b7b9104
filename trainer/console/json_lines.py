"""Log lines for machines: an object of JSON each, in the form that Cloud Logging understands.

What native code writes to stderr passes through a process of its own, which makes an object of each
line; a traceback is one. That process ends when the last writer has.
"""

import datetime
import json
import logging
import os
import re
import signal
import sys
import time
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

_LABELS = "logging.googleapis.com/labels"
_STDERR = 2
_END_SECONDS, _POLL_SECONDS = 10.0, 0.01
_MODULE = "trainer.console.json_lines"
_VARIABLE = "TFPS_JSON_STDERR"  # whose stderr is passed on, and by which process
_BEGIN = '{"severity": '
_TRACEBACK = "Traceback (most recent call last):"
# TensorFlow's own lines begin like `W0000 00:00:1795418835.945872    4282 file.cc:31] `; those of
# Python's other loggers name their level.
_NATIVE = re.compile(r"([IWEF])\d{4} \d\d:\d\d")
_OF_LETTER = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_NAMED = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
_ERROR = "error: "


class JsonFormatter(logging.Formatter):
    """Makes an object of each log record."""

    def __init__(self, labels: Mapping[str, str]):
        """Knows whose records they are.

        Args:
            labels: Of all of them, such as the role.
        """
        super().__init__()
        self._labels = dict(labels)

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        status = getattr(record, "status", {})  # of the run, for who follows it
        return to_line(record.levelname, message, self._labels, record.created, status)


def to_line(
    severity: str,
    message: str,
    labels: Mapping[str, str],
    at: float | None = None,
    more: Mapping[str, Any] = types.MappingProxyType({}),
) -> str:
    """A line of JSON.

    Args:
        severity: As Cloud Logging names it.
        message: The text; it may have several lines.
        labels: Whose line it is.
        at: When, seconds since 1970; None for now.
        more: Further fields.
    """
    now = datetime.datetime.now(datetime.UTC)
    when = now if at is None else datetime.datetime.fromtimestamp(at, datetime.UTC)
    text = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {"severity": severity, "time": text, "message": message, _LABELS: dict(labels), **more}
    )


class JsonStderr:
    """Makes lines of JSON of all that this process writes to stderr, native code included."""

    def __init__(self, labels: Mapping[str, str]):
        """Begins to, or goes on where this process had begun before it began again.

        Args:
            labels: Whose lines they are.
        """
        owner, _, wrapper = os.environ.get(_VARIABLE, "").partition(" ")
        if owner == str(os.getpid()):
            self._wrapper = int(wrapper)
            return
        sys.stderr.flush()
        reading, writing = os.pipe()
        self._wrapper = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE, json.dumps(dict(labels))],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
        )
        os.close(reading)
        os.dup2(writing, _STDERR)
        os.close(writing)
        os.environ[_VARIABLE] = f"{os.getpid()} {self._wrapper}"

    def close(self) -> None:
        """Waits until all that was written is passed on; nothing may be written after it."""
        sys.stderr.flush()
        null = os.open(os.devnull, os.O_WRONLY)
        for written in {_STDERR, sys.stderr.fileno()}:  # they differ where native code has a file
            os.dup2(null, written)
        os.close(null)
        deadline = time.monotonic() + _END_SECONDS
        while os.waitpid(self._wrapper, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def wrapped(lines: Iterable[str], labels: Mapping[str, str]) -> Iterator[str]:
    """Objects of lines, but for those that are some already.

    Args:
        lines: Without their ends.
        labels: Whose lines they are.
    """
    trace: list[str] = []
    for line in lines:
        if trace and (line.startswith((" ", "\t")) or line == ""):
            trace.append(line)
        elif trace:  # what was raised
            yield to_line("ERROR", "\n".join([*trace, line]), labels)
            trace = []
        elif line == _TRACEBACK:
            trace.append(line)
        elif line.startswith(_BEGIN):
            yield line
        elif line:
            yield to_line(*_told(line), labels)
    if trace:
        yield to_line("ERROR", "\n".join(trace), labels)


def _told(line: str) -> tuple[str, str]:
    """Severity and message of a line that is no object."""
    if line.startswith(_ERROR):
        return "ERROR", line
    if native := _NATIVE.match(line):
        return _OF_LETTER[native[1]], line
    if named := _NAMED.match(line):
        return named[1], line
    return "INFO", line


def _pass_on(source: TextIO, labels: Mapping[str, str]) -> None:
    for line in wrapped((line.rstrip("\n") for line in source), labels):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # what is told of them is still to come
    sys.stdin.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    _pass_on(sys.stdin, json.loads(sys.argv[1]))
