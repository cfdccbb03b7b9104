"""What a chief holds on its tasks, parameters and functions: TensorFlow's remote contexts."""

import functools

from tensorflow.python.eager import context


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
