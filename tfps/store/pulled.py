"""What one batch needs of the parameters."""

from typing import NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.store.messages import PulledRows


class Pulled(NamedTuple):
    """What one batch needs of the parameters.

    Attributes:
        dense: Every dense variable.
        state: Every state variable.
        groups: The distinct rows by group.
        lookups: The lookups, in the model's order.
        versions: Number of updates before the pull, scalar int64, by the index of the ps: of the
            one that counts staleness, and of those where the learning rate or the state needs it.
        loss_scale: What to multiply the loss by and divide the gradients by, scalar float32; None
            for nothing.
    """

    dense: list[tf.Tensor]
    state: list[tf.Tensor]
    groups: list[PulledRows]
    lookups: list[Lookup]
    versions: dict[int, tf.Tensor]
    loss_scale: tf.Tensor | None
