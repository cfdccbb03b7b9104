"""What a line of a task's log says that is an object of JSON, as tasks write them on platforms."""

from collections.abc import Mapping
from typing import Any

from tfps.live_view import status


def said(fields: Mapping[str, Any]) -> str:
    """How far the run is, as `tfps.live_view.status.parse` reads it, else the message.

    Args:
        fields: The object's.

    Returns:
        Nothing for an object that says neither.
    """
    found = status.from_json(fields)
    return found.to_text() if found else str(fields.get("message", ""))
