"""Rows of a group of tables between worker and ps."""

from typing import NamedTuple

import tensorflow as tf


class PulledRows(NamedTuple):
    """The distinct rows that a batch asked for.

    Attributes:
        ids: Their ids in the group `[u]`.
        rows: Their values `[u, dim]`.
        inverse: For every id asked for, the index of its row in `rows`, `[n]` int32.
        owned: For every ps, its rows' numbers within its part, `[u_k]`.
        where: For every ps, the indices of its rows in `rows`, `[u_k]` int32.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    inverse: tf.Tensor
    owned: list[tf.Tensor]
    where: list[tf.Tensor]


class SentSteps(NamedTuple):
    """What a worker's steps add to rows of one ps, on its way there.

    Attributes:
        rows: Their numbers within that ps's part, `[u]`.
        increment: What is added to them and their slots, `[u, 1 + slots, dim]`.
        updates: How many steps touched each, `[u]` int32; empty where no slot asks for it.
    """

    rows: tf.Tensor
    increment: tf.Tensor
    updates: list[tf.Tensor]


class SentRows(NamedTuple):
    """The gradient of rows of one ps on its way there.

    Attributes:
        rows: Their numbers within that ps's part, `[u]`.
        gradient: `[u, dim]`.
    """

    rows: tf.Tensor
    gradient: tf.Tensor
