"""Log lines for machines: an object of JSON each, in the form that Cloud Logging understands.

What native code writes to stderr stays as it is.
"""

import datetime
import json
import logging
import types
from collections.abc import Mapping
from typing import Any

_LABELS = "logging.googleapis.com/labels"


class JsonFormatter(logging.Formatter):
    """Makes an object of each log record, with labels of all of them, such as the role."""

    def __init__(self, labels: Mapping[str, str]):
        super().__init__()
        self._labels = dict(labels)

    def format(self, record: logging.LogRecord) -> str:
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
    """A line of JSON; `at` in seconds since 1970, None for now."""
    now = datetime.datetime.now(datetime.UTC)
    when = now if at is None else datetime.datetime.fromtimestamp(at, datetime.UTC)
    text = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {"severity": severity, "time": text, "message": message, _LABELS: dict(labels), **more}
    )
