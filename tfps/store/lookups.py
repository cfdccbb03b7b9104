"""Rows as lookups ask for them, and as groups of tables hold them."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.optimizers.update_rule import Tensors
from tfps.store.group_layout import AskedIds
from tfps.store.layout import StoreLayout
from tfps.store.messages import Pulled, PulledRows
from tfps.store.row_group import RowGroup


def ids_of_group(layout: StoreLayout, index: int, lookups: Sequence[Lookup]) -> AskedIds:
    mine = [lookup for lookup in lookups if layout.group_of[lookup.table][0] == index]
    members = [layout.group_of[lookup.table][1] for lookup in mine]
    return layout.groups[index].layout.ids_in_group(members, [lookup.ids for lookup in mine])


def rows_by_lookup(layout: StoreLayout, pulled: Pulled) -> list[tf.Tensor]:
    """One row per id asked for, `[*ids.shape, dim]` for each lookup, in the lookups' order."""
    pieces = []
    for index, group in enumerate(pulled.groups):
        mine = [x for x in pulled.lookups if layout.group_of[x.table][0] == index]
        sizes = [tf.size(lookup.ids) for lookup in mine]
        rows = tf.gather(group.rows, group.inverse)
        pieces.append(iter(tf.split(rows, tf.stack(sizes), num=len(mine)) if mine else ()))
    groups = [layout.group_of[lookup.table][0] for lookup in pulled.lookups]
    return [
        rows_for(lookup.ids, next(pieces[group]), layout.groups[group].layout.dim)
        for group, lookup in zip(groups, pulled.lookups, strict=True)
    ]


def rows_by_group(layout: StoreLayout, pulled: Pulled, rows: Tensors) -> list[tf.Tensor]:
    """Joins what `rows_by_lookup` cut: for each group, values of all its lookups, `[n, dim]`."""
    joined = []
    for index, group in enumerate(layout.groups):
        pieces = [
            values if values.shape.rank == 2 else tf.reshape(values, [-1, group.layout.dim])
            for values, lookup in zip(rows, pulled.lookups, strict=True)
            if layout.group_of[lookup.table][0] == index
        ]
        joined.append(tf.concat([*pieces, tf.zeros([0, group.layout.dim])], 0))
    return joined


def norms_by_table(
    layout: StoreLayout, lookups: Sequence[Lookup], rows: Tensors
) -> dict[str, tf.Tensor]:
    """By name of the table, the Euclidean norms of what `rows_by_group` joined, `[n]`."""
    norms: dict[str, list[tf.Tensor]] = {}
    for index, (group, values) in enumerate(zip(layout.groups, rows, strict=True)):
        mine = [lookup for lookup in lookups if layout.group_of[lookup.table][0] == index]
        if not mine:  # tables that this pass of the model does not use
            continue
        sizes = tf.stack([tf.size(lookup.ids) for lookup in mine])
        pieces = tf.split(tf.norm(values, axis=1), sizes, num=len(mine))
        for lookup, piece in zip(mine, pieces, strict=True):
            table = group.layout.tables[layout.group_of[lookup.table][1]]
            norms.setdefault(table.name, []).append(piece)
    return {name: tf.concat(pieces, 0) for name, pieces in norms.items()}


def rows_for(ids: tf.Tensor, rows: tf.Tensor, dim: int) -> tf.Tensor:
    """Rows `[n, dim]` in the shape of their ids, `[*ids.shape, dim]`."""
    shape = ids.shape
    if shape.rank == 1:
        return rows
    if shape.rank and shape[1:].is_fully_defined():
        return tf.reshape(rows, [-1, *shape[1:], dim])
    return tf.reshape(rows, tf.concat([tf.shape(ids), [dim]], 0))


class RowFinder:
    """Finds which rows lookups ask for, by group of tables.

    It is traced once, however many steps a closure is unrolled into: what is asked of the ps is a
    third of a step's operations.
    """

    def __init__(self, layout: StoreLayout, groups: Sequence[RowGroup]):
        def asked(lookups: list[Lookup]) -> list[AskedIds]:
            return [ids_of_group(layout, index, lookups) for index in range(len(groups))]

        def found(lookups: list[Lookup]) -> list[PulledRows]:
            return [group.find(some) for group, some in zip(groups, asked(lookups), strict=True)]

        def distinct(lookups: list[Lookup]) -> list[tuple[AskedIds, tf.Tensor]]:
            return [some.distinct() for some in asked(lookups)]

        self._find, self._distinct = (
            tf.function(what, autograph=False, reduce_retracing=True) for what in (found, distinct)
        )

    def find(self, lookups: Sequence[Lookup]) -> list[PulledRows]:
        """What each ps is asked for, by group; without values."""
        return list(self._find(list(lookups)))

    def distinct(self, lookups: Sequence[Lookup]) -> list[tuple[AskedIds, tf.Tensor]]:
        """What the lookups ask for by group, each row once, as `AskedIds.distinct` gives it."""
        return list(self._distinct(list(lookups)))
