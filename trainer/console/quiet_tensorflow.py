"""Loads TensorFlow without its notices on the terminal; tools import this module first.

TensorFlow writes some notices before it reads its log level, so they are held back at the level
of the file descriptor, and shown when loading fails. Set `TF_CPP_MIN_LOG_LEVEL=0` to see all of
them.
"""

import os
import sys
import tempfile

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def _load() -> None:
    stderr = 2
    sys.stderr.flush()
    terminal = os.dup(stderr)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), stderr)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            notices.seek(0)
            os.write(terminal, notices.read())
            raise
        finally:
            os.dup2(terminal, stderr)
            os.close(terminal)


# What matters reaches Python as an exception.
if os.environ.setdefault(_LEVEL, "3") not in ("0", "1"):
    _load()
