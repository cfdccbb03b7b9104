"""What a batch asks of the ps, and exchanges with them: a tensor from each and one to each."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.optimizers.update_rule import Tensors
from tfps.store.dense_parameters import DenseParameters
from tfps.store.group_layout import AskedIds
from tfps.store.layout import StoreLayout
from tfps.store.messages import (
    Note,
    Packing,
    Pulled,
    PulledRows,
    ReadRows,
    SentRows,
    Wire,
    Writes,
    bits_of,
    numbers_of,
    size_of_bits,
)
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
        return list(self._find(list(lookups)))

    def distinct(self, lookups: Sequence[Lookup]) -> list[tuple[AskedIds, tf.Tensor]]:
        """What the lookups ask for by group, each row once, as `AskedIds.distinct` gives it."""
        return list(self._distinct(list(lookups)))


class Push(NamedTuple):
    """What has arrived of a batch at one ps."""

    dense: list[tf.Tensor]  # one gradient `[n]`; none for a model without dense parameters
    rows: list[SentRows]
    arrived: list[tf.Tensor]


# Applies what has arrived at a ps, given its index: what is there once it is written.
Apply = Callable[[int, Push], Writes]


class Exchange:
    """Sends values of rows and dense parameters together, and so their gradients.

    Numbers of rows go ahead, with the pull, and lie on the ps when gradients come.
    """

    def __init__(
        self,
        dense: DenseParameters,
        groups: Sequence[RowGroup],
        devices: Sequence[str],
        wire: Wire,
        packing: Packing,
    ):
        self._dense, self._groups, self._devices = dense, groups, devices
        self._dtype = tf.as_dtype(wire.dtype)
        self._packing = packing

    def pull(
        self, found: Sequence[PulledRows], after: Tensors = (), is_training: bool = True
    ) -> tuple[list[tf.Tensor], list[PulledRows]]:
        """Every dense variable's value, and by group the rows that `RowGroup.find` found."""
        arrived = [
            self._pull(part, found, after, is_training) for part in range(len(self._devices))
        ]
        rows = [[of_groups[index] for of_groups, _ in arrived] for index in range(len(found))]
        pulled = [
            group.joined(some, parts)
            for group, some, parts in zip(self._groups, found, rows, strict=True)
        ]
        dense = [value for _, values in arrived for value in values]
        return self._dense.joined(dense), pulled

    def push(
        self,
        pulled: Sequence[PulledRows],
        rows: Tensors,
        dense: Tensors,
        note: Note | None,
        apply: Apply,
    ) -> Writes:
        pieces = self._dense.pieces(dense)
        of_groups = [
            group.send(some, gradient)
            for group, some, gradient in zip(self._groups, pulled, rows, strict=True)
        ]
        writes: Writes = []
        for part, device in enumerate(self._devices):
            mine, noted = [each[part] for each in of_groups], note if part == 0 else None
            packed = self._packing.pack(
                [
                    *([each.gradient] for each in mine),
                    *pieces[part : part + 1],
                    *([bits_of(each.numbers, self._dtype)] for each in [noted] if each),
                ]
            )
            with tf.device(device):
                writes += self._applied(part, packed, [each.rows for each in mine], noted, apply)
        return writes

    def _applied(
        self, part: int, packed: Tensors, rows: Tensors, note: Note | None, apply: Apply
    ) -> Writes:
        """Applies what one ps was sent, and delivers the note; under its device."""
        arrived, numbers = tf.nest.map_structure(tf.identity, (list(packed), list(rows)))
        bits = size_of_bits(note.numbers.shape[0], tf.float64, self._dtype) if note else 0
        widths = [group.gradients.width for group in self._groups]
        values = self._parts(part, arrived, numbers, widths, bits)
        noted = values.pop() if note else None
        count = len(numbers)
        sent = [SentRows(*pair) for pair in zip(numbers, values[:count], strict=True)]
        applied = apply(part, Push(values[count:], sent, [*arrived, *numbers]))
        if note:
            with tf.control_dependencies(applied):
                note.deliver(numbers_of(noted, tf.float64))
        return applied

    def _pull(
        self, part: int, found: Sequence[PulledRows], after: Tensors, is_training: bool
    ) -> tuple[list[ReadRows], list[tf.Tensor]]:
        """From one ps: the rows found, by group, and its dense parameters if there are any."""
        with tf.device(self._devices[part]), tf.control_dependencies(after):
            read = [
                group.read_part(part, some.owned[part], is_training=is_training)
                for group, some in zip(self._groups, found, strict=True)
            ]
            values = [rows for _, rows in read]
            if self._dense.layout.total:
                values.append(self._dense.read_part(part))
            packed = self._packing.pack([[value] for value in values])
        asked = [some.where[part] if some.where else some.ids for some in found]
        values = self._parts(part, packed, asked, [group.layout.dim for group in self._groups])
        rows = [each._replace(rows=some) for each, some in zip(read, values, strict=False)]
        return rows, values[len(rows) :]

    def _parts(
        self, part: int, packed: Tensors, rows: Tensors, widths: Sequence[int], bits: int = 0
    ) -> list[tf.Tensor]:
        """Cuts what travels to or from a ps: values by group `[u, width]`, dense ones, bits."""
        # The rows of the last group are the rest: an operation less.
        several = zip(rows[:-1], widths[:-1], strict=True)
        sizes: list[int | tf.Tensor | None] = [tf.size(some) * width for some, width in several]
        sizes += [None for _ in rows[-1:]]
        if self._dense.layout.total:
            first, end = self._dense.layout.bounds(part)
            sizes.append(end - first)
        values = self._packing.unpack(packed, [*sizes, bits] if bits else sizes)
        of_groups = [tf.reshape(x, [-1, width]) for x, width in zip(values, widths, strict=False)]
        return [*of_groups, *values[len(widths) :]]
