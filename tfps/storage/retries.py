"""Counts the requests to Google Cloud Storage that this process had to make again.

Those of TensorFlow's gs:// client are not among them: it tries again by itself and does not tell.
"""

import threading

_lock = threading.Lock()
_count = 0


def add(error: Exception) -> None:
    """Counts one, made again because of an error; what `google.api_core.retry` calls."""
    global _count
    with _lock:
        _count += 1


def count() -> int:
    """How many there were so far."""
    return _count
