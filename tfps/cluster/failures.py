"""Tells a person what an error of TensorFlow's runtime means."""

import os
import re
from collections.abc import Callable

import tensorflow as tf

from tfps.errors import LostPsError, RunError, UserError
from tfps.job_dir.task_name import TaskName
from tfps.layers.id_check import OUTSIDE_TABLE, WEIGHTS_MISSING
from tfps.storage import files
from tfps.storage.failures import PASSING, StorageError

# What is matched here is TensorFlow's wording; docs/tensorflow_insides.md has a canary for each.
_PS = re.compile(r"/job:ps/replica:0/task:(\d+)")
# A ps that began again knows nothing of the variables that its process had before. Where a worker
# has begun again too, TensorFlow has connected all tasks again, and nothing else tells of the loss.
_FORGOTTEN = re.compile(
    r"Unable to find the relevant tensor remote_handle"
    r".*?remote target /job:ps/replica:0/task:(\d+)",
    re.DOTALL,
)
# The same of the chief's own calls, which do not name the ps.
_OF_OTHER_CONNECTION = "Resource input tensor contains an invalid device"
# A request that was damaged on its way: the task ran nothing of it. Seen twice in thousands of
# runs, on a busy machine.
_GARBLED = re.compile(
    r"Unable to parse request.*?remote target /job:(ps|worker)/replica:0/task:(\d+)", re.DOTALL
)
# Lines with which TensorFlow tells where in a graph an error arose, before it tells the error.
_ACCOUNT = re.compile(
    r"Graph execution error|Detected at node|File \"|<stack traces|\d+ root error|\[\["
)
_WRAPPING = re.compile(
    r"^(\(\d+\)\s*)?(\w+Error:\s*|[A-Z_]+:\s*)?"
    r"(Error in user-defined function .*Iterator::[\w:]+:\s*)?(Name: <unknown>,\s*)?"
    r"(StringToNumberOp could not correctly convert string: )?"  # a `fail_unless`
)
# What bad records can end in.
_OF_RECORDS = (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError)
# Of TensorFlow's gs:// client, in an error of the same kinds as that of a lost task.
_STORAGE_GAVE_UP = "retry attempts failed"
# Of its local files, as the operating system words them.
_STORAGE_ERRORS = tuple(f"; {os.strerror(number)}" for number in PASSING)
_ASSERTION = re.compile(r"^assertion failed: \[(.*)\]$")


def explain(
    error: BaseException,
    doing: str,
    path: str,
    bad_records: Callable[[], str] | None = None,
) -> BaseException:
    """The error to show for a closure's error: itself if it is not of TensorFlow's runtime.

    `doing` is as "training epoch 1". `bad_records` describes the bad ones among the records that
    the closure read; it is empty where there is none.
    """
    if not isinstance(error, tf.errors.OpError):
        return error
    if lost := lost_ps_behind(error):
        return lost
    text = first_line(error)
    if unreadable := _unreadable(error, doing, path, text):
        return unreadable
    if isinstance(error, _OF_RECORDS) and (bad := _described(bad_records, path)):
        return UserError(f"{doing}: shard {path}: {bad}")
    if isinstance(error, tf.errors.DataLossError):
        return UserError(f"{doing}: shard {path} is damaged ({text}); make it again")
    if isinstance(error, tf.errors.OutOfRangeError):
        return UserError(
            f"{doing}: shard {path} holds fewer records than its manifest says; make it again"
        )
    if OUTSIDE_TABLE in text:
        return UserError(
            f"{doing}: shard {path}: {text}; give the table more rows, or correct the data"
        )
    if WEIGHTS_MISSING in text:
        return UserError(f"{doing}: shard {path}: {text}; correct the data")
    if isinstance(error, tf.errors.InvalidArgumentError) and re.search(
        r"Feature: |Key: |parse|Example", text
    ):
        return UserError(
            f"{doing}: a record of shard {path} has another schema than its manifest says "
            f"({text}); make it again with trainer.prepare"
        )
    tf.get_logger().error("%s, shard %s: %s", doing, path, error)
    return RunError(f"{doing}: shard {path}: {text}; the log of the chief tells where in the model")


def _unreadable(error: tf.errors.OpError, doing: str, path: str, text: str) -> Exception | None:
    """The error of a file that cannot be had, if it is one."""
    # Operations without a kernel for a device are not found either.
    if isinstance(error, tf.errors.NotFoundError) and path in error.message:
        return UserError(f"{doing}: shard {path} {_absence(path)} ({text})")
    if isinstance(error, tf.errors.PermissionDeniedError):
        return UserError(
            f"{doing}: the worker may not read shard {path} ({text}); give its account "
            "roles/storage.objectViewer on the bucket"
        )
    if _STORAGE_GAVE_UP in text or text.endswith(_STORAGE_ERRORS):
        return RunError(
            f"{doing}: shard {path} cannot be read ({text}); when the storage answers again, the "
            "same command resumes from the last checkpoint"
        )
    return None


def lost_ps_behind(error: tf.errors.OpError) -> LostPsError | None:
    """The loss of a ps that an error shows, or of a connection that is to be made again."""
    text = str(error)
    if _STORAGE_GAVE_UP in text:
        return None
    if garbled := _GARBLED.search(text):
        task = TaskName(garbled[1], int(garbled[2]))
        return LostPsError(f"{task} could not read what it was sent")
    if _OF_OTHER_CONNECTION in text:
        return lost_ps("a ps")
    found = _FORGOTTEN.search(text)
    if isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)):
        found = found or _PS.search(text)
    return lost_ps(str(TaskName("ps", int(found.group(1))))) if found else None


def is_of_lost_peer(error: tf.errors.OpError) -> bool:
    """Whether an error may come of a ps or of storage that did not answer, which others see to.

    One that was cancelled does not tell for whose sake.
    """
    is_derived = isinstance(error, (tf.errors.CancelledError, tf.errors.DeadlineExceededError))
    return is_derived or _STORAGE_GAVE_UP in str(error) or bool(_PS.search(str(error)))


def lost_ps(names: str) -> LostPsError:
    return LostPsError(f"{names} was lost, and with it its share of the parameters")


def _absence(path: str) -> str:
    """What to say of a shard that a worker did not find."""
    try:
        is_there = files.exists(path)
    except StorageError as error:
        return f"was not there for the worker, and the chief sees as little: {error}"
    if is_there:
        return "is there for the chief, but not for the worker; every task must see the same files"
    return "has vanished since the run began; put it back and start the run again to continue"


def _described(bad_records: Callable[[], str] | None, path: str) -> str:
    try:
        bad = bad_records() if bad_records else ""
    except tf.errors.OpError as error:
        tf.get_logger().warning("%s cannot be read to find the bad record: %s", path, error.message)
        return ""
    return f"{bad}; correct the data or make the shard again" if bad else ""


def first_line(error: tf.errors.OpError) -> str:
    """The message without TensorFlow's account of graph nodes and call stacks."""
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    own = [line for line in lines if not _ACCOUNT.match(line)]
    text = re.split(r"\[\[|\[Op:", (own or lines or [type(error).__name__])[0])[0]
    text = _ASSERTION.sub(r"\1", _WRAPPING.sub("", text).strip())
    return text.replace('\\"', '"').rstrip(".")
