"""Tells a person what an error of TensorFlow's runtime means."""

import re

import tensorflow as tf

from tfps.errors import RunError, UserError

_PS = re.compile(r"/job:ps/replica:0/task:(\d+)")
# Lines with which TensorFlow tells where in a graph an error arose, before it tells the error.
_ACCOUNT = re.compile(
    r"Graph execution error|Detected at node|File \"|<stack traces|\d+ root error|\[\["
)
_WRAPPING = re.compile(
    r"^(\(\d+\)\s*)?(\w+Error:\s*|[A-Z_]+:\s*)?"
    r"(Error in user-defined function .*Iterator::[\w:]+:\s*)?(Name: <unknown>,\s*)?"
    r"(StringToNumberOp could not correctly convert string: )?"  # a `refusal`
)
_ASSERTION = re.compile(r"^assertion failed: \[(.*)\]$")


def explain(error: BaseException, doing: str, path: str) -> BaseException:
    """The error to show for a closure's error.

    Args:
        error: What the closure raised.
        doing: What was being done, such as "training epoch 1".
        path: The shard.

    Returns:
        A `UserError` or a `RunError`; an error that is not of TensorFlow's runtime itself.
    """
    if not isinstance(error, tf.errors.OpError):
        return error
    if lost := lost_ps_behind(error):
        return lost
    text = first_line(error)
    if isinstance(error, tf.errors.DataLossError):
        return UserError(f"{doing}: shard {path} is damaged ({text}); make it again")
    if isinstance(error, tf.errors.NotFoundError):
        return UserError(f"{doing}: shard {path} cannot be read by the worker ({text})")
    if isinstance(error, tf.errors.OutOfRangeError):
        return UserError(
            f"{doing}: shard {path} holds fewer records than its manifest says; make it again"
        )
    if "is outside table" in text:
        return UserError(
            f"{doing}: shard {path}: {text}; give the table more rows, or correct the data"
        )
    if "has not as many weights as ids" in text:
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


def lost_ps_behind(error: tf.errors.OpError) -> RunError | None:
    """The loss of a ps that an error tells of, if it does."""
    found = _PS.search(str(error))
    if found and isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)):
        return lost_ps(f"ps {found.group(1)}")
    return None


def lost_ps(names: str) -> RunError:
    """The error of a run that lost a ps."""
    return RunError(
        f"{names} was lost, and with it its share of the parameters; start every task again with "
        "the same --job_dir to go on from the last checkpoint"
    )


def first_line(error: tf.errors.OpError) -> str:
    """The message without TensorFlow's account of graph nodes and call stacks."""
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    own = [line for line in lines if not _ACCOUNT.match(line)]
    text = re.split(r"\[\[|\[Op:", (own or lines or [type(error).__name__])[0])[0]
    text = _ASSERTION.sub(r"\1", _WRAPPING.sub("", text).strip())
    return text.replace('\\"', '"').rstrip(".")
