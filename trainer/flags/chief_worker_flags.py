"""Flags of the worker beside the chief, on its machine; every task of a job has the same."""

from absl import flags

_FLAGS = flags.FLAGS

flags.DEFINE_boolean(
    "chief_works", False, "Adds a worker beside the chief, on its machine; the same for all tasks."
)
flags.DEFINE_integer(
    "chief_worker_port",
    0,
    "Port of the worker beside the chief; 0: the one after the chief's.",
    lower_bound=0,
    upper_bound=(1 << 16) - 1,
)
flags.DEFINE_integer(
    "chief_worker_restarts",
    3,
    "How often the worker beside the chief is restarted when it dies.",
    lower_bound=0,
)


def port() -> int | None:
    """Of the worker beside the chief, 0 for the one after the chief's; None without a worker."""
    return int(_FLAGS.chief_worker_port) if _FLAGS.chief_works else None
