"""What goes wrong with checkpoints, in a person's words."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfps.cluster.failures import first_line, lost_ps_behind
from tfps.errors import RunError
from tfps.storage.failures import StorageError

_GO_ON = "when the storage answers again, the same command goes on from the last checkpoint"


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is missing, truncated or altered; the message names it and says how.

    Unlike a checkpoint that does not fit the run, it is no fault of whoever started the run: the
    checkpoint before it may do.
    """


@contextlib.contextmanager
def explain_failures(what: str, mend: str = "") -> Iterator[None]:
    """Makes errors of the storage a `RunError` that says what they prevented.

    TensorFlow's are those of the ps, too; that of a lost ps stays what it is.

    Args:
        mend: What a person can do about it, or needs to know; empty where the same command goes on
            once the storage answers.
    """
    try:
        yield
    except StorageError as error:  # it says itself that the run can go on
        raise RunError(f"{what}: {error}" + (f"; {mend}" if mend else "")) from None
    except FileNotFoundError as error:
        raise RunError(
            f"{what}: {error.filename} is gone; another chief may have begun; {mend or _GO_ON}"
        ) from None
    except tf.errors.OpError as error:
        if lost_ps_behind(error):
            raise
        raise RunError(f"{what} ({first_line(error)}); {mend or _GO_ON}") from None
