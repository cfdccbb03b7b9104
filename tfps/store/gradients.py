"""What a batch gave, on a worker."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.store.pulled import Pulled


class Gradients(NamedTuple):
    """What a batch gave.

    Attributes:
        pulled: What was pulled for it.
        dense: One gradient per dense variable.
        rows: One per group of tables, `[n, dim]`: what `rows_by_group` returned.
        state: New values of the state.
    """

    pulled: Pulled
    dense: Sequence[tf.Tensor]
    rows: Sequence[tf.Tensor]
    state: Sequence[tf.Tensor]
