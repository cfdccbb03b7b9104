"""Rows as lookups ask for them, and as groups of tables hold them."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.store.pulled import Pulled
from tfps.store.store_layout import StoreLayout


def rows_by_lookup(layout: StoreLayout, pulled: Pulled) -> list[tf.Tensor]:
    """One row per id asked for, `[*ids.shape, dim]` for each lookup, in the lookups' order.

    Args:
        layout: Where everything lies.
        pulled: What was pulled for the lookups.
    """
    pieces = []
    for index, group in enumerate(pulled.groups):
        mine = [x for x in pulled.lookups if layout.group_of[x.table][0] == index]
        sizes = [tf.size(lookup.ids) for lookup in mine]
        rows = tf.gather(group.rows, group.inverse)
        pieces.append(iter(tf.split(rows, tf.stack(sizes), num=len(mine)) if mine else ()))
    groups = [layout.group_of[lookup.table][0] for lookup in pulled.lookups]
    return [
        _shaped(next(pieces[group]), lookup, layout.groups[group].layout.dim)
        for group, lookup in zip(groups, pulled.lookups, strict=True)
    ]


def rows_by_group(
    layout: StoreLayout, pulled: Pulled, rows: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Joins what `rows_by_lookup` cut: for each group, values of all its lookups, `[n, dim]`.

    Args:
        layout: Where everything lies.
        pulled: What was pulled for the lookups.
        rows: For each lookup, a value for each of its rows.
    """
    joined = []
    for index, group in enumerate(layout.groups):
        pieces = [
            values if values.shape.rank == 2 else tf.reshape(values, [-1, group.layout.dim])
            for values, lookup in zip(rows, pulled.lookups, strict=True)
            if layout.group_of[lookup.table][0] == index
        ]
        joined.append(tf.concat([*pieces, tf.zeros([0, group.layout.dim])], 0))
    return joined


def _shaped(rows: tf.Tensor, lookup: Lookup, dim: int) -> tf.Tensor:
    shape = lookup.ids.shape
    if shape.rank == 1:
        return rows
    if shape.rank and shape[1:].is_fully_defined():
        return tf.reshape(rows, [-1, *shape[1:], dim])
    return tf.reshape(rows, tf.concat([tf.shape(lookup.ids), [dim]], 0))
