"""What one batch needs of the parameters."""

from typing import NamedTuple

import tensorflow as tf

from tfps.model import Lookup
from tfps.store.row_tensors import PulledRows


class Pulled(NamedTuple):
    """What one batch needs of the parameters.

    Attributes:
        dense: Every dense variable.
        state: Every state variable.
        groups: The distinct rows by group.
        lookups: The lookups, in the model's order.
        versions: Number of updates before the pull, scalar int64, on the ps that counts staleness;
            on every ps where the learning rate depends on it.
        loss_scale: What to multiply the loss by and divide the gradients by, scalar float32; None
            for nothing.
    """

    dense: list[tf.Tensor]
    state: list[tf.Tensor]
    groups: list[PulledRows]
    lookups: list[Lookup]
    versions: list[tf.Tensor]
    loss_scale: tf.Tensor | None
