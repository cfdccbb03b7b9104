"""What a batch pulls from the ps and what it gives them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Lookup


class PulledRows(NamedTuple):
    """The distinct rows that a batch asked for.

    Attributes:
        ids: Their ids in the group `[u]`.
        rows: Their values `[u, dim]`.
        inverse: For every id asked for, the index of its row in `rows`, `[n]` int32.
        owned: For every ps, what its rows are known by there: their numbers within its part,
            `[u_k]`. Of tables without a vocabulary it is the message that asks for their keys until
            they are pulled, and then their places, which the ps has found and keeps.
        where: For every ps, the indices of its rows in `rows`, `[u_k]` int32.
        tables: The index in the group of each row's table, `[u]` int32, where its id does not tell.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    inverse: tf.Tensor
    owned: list[tf.Tensor]
    where: list[tf.Tensor]
    tables: tf.Tensor | None = None


class ReadRows(NamedTuple):
    """What one ps has read of the rows that it was asked for.

    Attributes:
        owned: What the rows are known by there, `[u]`; it is on that ps where it has found them.
        rows: Their values as they travel, `[u, dim]`, or `[u, size]` of `StoredRow`.
    """

    owned: tf.Tensor
    rows: tf.Tensor


class SentSteps(NamedTuple):
    """What a worker's steps add to rows of one ps, on its way there.

    Attributes:
        rows: Their numbers within that ps's part, or their places there, `[u]`.
        increment: What is added to them and their slots, `[u, size]`.
        updates: How many steps touched each, `[u]` int32; empty where no slot asks for it.
    """

    rows: tf.Tensor
    increment: tf.Tensor
    updates: list[tf.Tensor]


class SentRows(NamedTuple):
    """The gradient of rows of one ps on its way there.

    Attributes:
        rows: Their numbers within that ps's part, or their places there, `[u]`.
        gradient: `[u, width]` of `RowGradients`.
    """

    rows: tf.Tensor
    gradient: tf.Tensor


class PartGradients(NamedTuple):
    """A gradient as it lies on one ps.

    Attributes:
        dense: Of that ps's part of the dense parameters, `[n]` float32; empty for a model without
            any.
        groups: Of distinct rows of its part of each group of tables, float32.
    """

    dense: list[tf.Tensor]
    groups: list[SentRows]


class Pulled(NamedTuple):
    """What one batch needs of the parameters.

    Attributes:
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


class Note(NamedTuple):
    """What travels to the first ps with a push, for somebody else there.

    Attributes:
        numbers: `[n]` float64, of a known length, on the worker.
    """

    numbers: tf.Tensor
    deliver: Callable[[tf.Tensor], Any]


class Gradients(NamedTuple):
    """What a batch gave.

    Attributes:
        rows: One per group of tables, `[n, width]` of its `RowGradients`.
    """

    pulled: Pulled
    dense: Sequence[tf.Tensor]
    rows: Sequence[tf.Tensor]
    state: Sequence[tf.Tensor]
