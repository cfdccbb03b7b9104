"""What a chief holds on its tasks, parameters and functions: TensorFlow's remote contexts."""

import functools
import logging
import socket
import threading

import tensorflow as tf
from tensorflow.python.eager import context

_CLOSE_SECONDS = 10.0  # for every task to answer
_log = logging.getLogger(__name__)


def let_expire(seconds: int) -> None:
    """Lets the tasks free what this process will hold there some time after it was killed.

    TensorFlow has ten minutes: a ps whose chief was killed twice would hold all parameters three
    times.

    Args:
        seconds: Without a sign of life from this process, which sends two in that time.
    """
    # Private: ParameterServerStrategy connects with the default, which nothing public changes.
    current = context.context()
    current.ensure_initialized()
    for name in ("set_server_def", "update_server_def"):
        method = getattr(type(current), name)
        limited = functools.partial(method, current, keep_alive_secs=seconds)
        setattr(current, name, limited)


def another_address(chief: str) -> str:
    """Where the chief must be said to be so that its next connection begins with nothing.

    Connected again to the same cluster, TensorFlow goes on with the contexts of before, and never
    frees what workers and ps have made of one connection's functions: 100 MB of the Criteo model on
    a worker. It closes contexts where the cluster is another one. No task connects to this address;
    the server at the first one stays, for whoever looks whether the chief is there.

    Args:
        chief: Address "host:port" of the chief.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        return f"{chief.rpartition(':')[0]}:{free.getsockname()[1]}"


def close() -> None:
    """Lets the tasks free at once what this process holds there, because its program will end.

    TensorFlow does so where a process ends by itself, but not before `os.execv`.
    """
    alone = tf.train.ClusterSpec({"chief": ["localhost:0"]})
    connect = functools.partial(tf.config.experimental_connect_to_cluster, alone, job_name="chief")
    thread = threading.Thread(target=connect, name="close contexts", daemon=True)
    thread.start()
    thread.join(_CLOSE_SECONDS)
    if thread.is_alive():
        _log.warning("not every task has answered; those that did not hold the parameters longer")
