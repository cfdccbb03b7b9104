"""What the tasks of a cluster make for their chief: how long they keep it, and how they run it."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Private: ParameterServerStrategy connects with what it takes by default, which nothing public
# changes.
from tensorflow.python.eager import context


def set_up(keep_alive_seconds: int) -> None:
    """Has tasks that this process connects to keep what it makes there for so long, and rest.

    TensorFlow has ten minutes: a ps whose chief was killed twice would hold all parameters three
    times.

    Closures run in threads that a task makes for its chief, as the chief's settings say, whatever
    those of its own server are. By default a thread that has nothing to do looks some hundred
    times whether there is something before it sleeps: on a ps and its workers, which wait for each
    other in every step, that was 6 % of all CPU, and 14 % where others needed the cores.

    A task goes once through a graph that it is given, where TensorFlow does so twice and also looks
    for memory to save: of a training closure with ten steps that took 5.8 of 10.5 seconds on a
    busy machine, and left 52 of 3,860 nodes less. Nor does it translate the graph to another form
    and back, which was a quarter of the rest and left every node as it was.
    """
    current = context.context()
    current.ensure_initialized()
    current._config = _of_graphs()
    for name in ("set_server_def", "update_server_def"):
        connect = functools.partial(getattr(type(current), name), current)
        setattr(current, name, functools.partial(_connect, connect, keep_alive_seconds))


def leave_layouts_alone() -> None:
    """Has no task look for layouts of images that suit a GPU, which they do even without one."""
    tf.config.optimizer.set_experimental_options({"layout_optimizer": False})


def _of_graphs() -> tf.compat.v1.ConfigProto:
    """What travels with every call of a graph."""
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    options.memory_optimization = options.NO_MEM_OPT
    options.disable_tfg_optimizer = True
    return config


def _connect(connect: Callable[..., None], keep_alive_seconds: int, server_def: Any) -> None:
    """Connects to the tasks of a cluster."""
    server_def.default_session_config.experimental.disable_thread_spinning = True
    connect(server_def, keep_alive_secs=keep_alive_seconds)
