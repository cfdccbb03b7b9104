"""What a batch exchanges with the ps: one tensor from each, and one to each."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.optimizers.update_rule import Tensors
from tfps.store.dense_parameters import DenseParameters
from tfps.store.messages import (
    Note,
    Packing,
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


class Push(NamedTuple):
    """What has arrived of a batch at one ps."""

    dense: list[tf.Tensor]  # one gradient `[n]`; none for a model without dense parameters
    rows: list[SentRows]
    arrived: list[tf.Tensor]


# Given the index of a ps and what has arrived there, applies it: what is there once it is written.
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
        self._dense = dense
        self._groups = groups
        self._devices = devices
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
        """Sends each ps its part of a batch's gradients, and has it applied there."""
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
        # The rows of the last group are what is left: an operation less.
        several = zip(rows[:-1], widths[:-1], strict=True)
        sizes: list[int | tf.Tensor | None] = [tf.size(some) * width for some, width in several]
        sizes += [None for _ in rows[-1:]]
        if self._dense.layout.total:
            first, end = self._dense.layout.bounds(part)
            sizes.append(end - first)
        values = self._packing.unpack(packed, [*sizes, bits] if bits else sizes)
        of_groups = [tf.reshape(x, [-1, width]) for x, width in zip(values, widths, strict=False)]
        return [*of_groups, *values[len(widths) :]]
