"""What would fail only once servers load a model."""

import math

from cloud.deployment.served_model import ServedModel
from tfps import byte_size
from tfps.errors import UserError

_SERVER_BYTES = 512 << 20  # TensorFlow Serving itself, its threads and requests in flight
_GROWTH = 1.2  # what a model takes beyond its variables


def memory_needed(model: ServedModel, versions: int = 1) -> int:
    """Bytes of memory that a server needs.

    Args:
        versions: How many versions a server holds at once: a server that is to put a new one in the
            place of another loads it before it lets the other go.
    """
    return _SERVER_BYTES + math.ceil(model.variables_bytes * _GROWTH) * versions


def check_memory(model: ServedModel, held: int, where: str, versions: int = 1) -> None:
    """Refuses servers into which a model does not fit.

    Args:
        held: Bytes of memory of each.
        where: What says so, for the message: `--machine=n2-standard-4`.
    """
    needed = memory_needed(model, versions)
    if needed > held:
        many = f"{versions} versions of " if versions > 1 else ""
        raise UserError(
            f"{where}: {many}{model.path} with variables of "
            f"{byte_size.show(model.variables_bytes)} need some {byte_size.show(needed)} of "
            f"memory, but a server has {byte_size.show(held)}; take a larger one, or export the "
            "model with --train.export_dtype=bfloat16 or int8"
        )
