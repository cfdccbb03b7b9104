"""The rows of a group of tables on the ps; its methods run under the device of the part's ps."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.update_rule import Slot, Tensors, UpdateRule
from tfps.store.group_layout import RowLayout
from tfps.store.layout import Group
from tfps.store.partitioned_variable import (
    PartitionedVariable,
    TensorSlice,
    gather,
    gather_first,
    scatter,
)
from tfps.store.stored_row import StoredRow, draw_noise

# What updates make of rows and of each of their slots.
Change = Callable[[list[tf.Tensor]], Tensors]


class RowVariable:
    """One variable per ps, `[rows, lines, width]` of `StoredRow`.

    Fetching rows from all over a large memory is what costs time. So a row's values and slots lie
    together, and are fetched and written as one: in less than half the time of TensorFlow's sparse
    kernels on separate variables. A pull that needs no slots fetches the row's own line only.
    """

    def __init__(
        self, layout: RowLayout, row: StoredRow, devices: Sequence[str], slots: Mapping[str, Slot]
    ):
        self._layout, self._row = layout, row
        self._slots = list(slots.values())
        self._stream = zlib.crc32(layout.name.encode())
        self._variable = PartitionedVariable(
            layout.name,
            (layout.total_rows * row.lines, row.width),
            self._line_bounds,
            devices,
            self._new_part,
        )

    def read(self, part: int, rows: tf.Tensor, with_slots: bool) -> list[tf.Tensor]:
        """Rows `[u, dim]` and each slot, `[u, dim]` or `[u, 1]`, float32."""
        variable = self._variable.parts[part]
        if not with_slots or self._row.lines == 1:
            return self._row.decode([gather_first(variable, rows)])
        return self._row.decode(tf.unstack(gather(variable, rows), self._row.lines, 1))

    def write(self, part: int, rows: tf.Tensor, values: Tensors, update: tf.Tensor) -> tf.Operation:
        noise = None
        if self._row.dtype != "float32":
            # The same noise for the same update.
            noise = draw_noise(tf.shape(values[0]), self._stream + part, update)
        return self.set(part, rows, tf.stack(self._row.encode(values, noise), 1))

    def stored(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows of a part with their slots as they are stored, `[u, lines, width]`."""
        return gather(self._variable.parts[part], rows)

    def set(self, part: int, rows: tf.Tensor, stored: tf.Tensor) -> tf.Operation:
        return scatter(self._variable.parts[part], rows, stored)

    def begin(self, part: int, rows: tf.Tensor, values: tf.Tensor) -> None:
        self.set(part, rows, self.begun(values))

    def begun(self, values: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` with the initial values of their slots, as `stored` gives them."""
        single = tf.stack([tf.shape(values)[0], 1])
        slots = [
            tf.fill(single if slot.is_per_row else tf.shape(values), np.float32(slot.start))
            for slot in self._slots
        ]
        return tf.stack(self._row.encode([values, *slots]), 1)

    def slices(self) -> list[TensorSlice]:
        lines = self._row.lines
        return [dataclasses.replace(each, lines=lines) for each in self._variable.slices()]

    def _line_bounds(self, part: int) -> tuple[int, int]:
        first, end = self._layout.bounds(part)
        return first * self._row.lines, end * self._row.lines

    def _new_part(self, part: int) -> tf.Variable:
        first, end = self._layout.bounds(part)
        return self._layout.new_variable(
            [end - first, self._row.lines, self._row.width], tf.as_dtype(self._row.dtype)
        )


def missed_since(last: tf.Tensor, step: tf.Tensor) -> MissedUpdates:
    """The updates that rows have missed since their last ones, `[u]` int32."""
    # An update that began later may have been made before this one.
    return MissedUpdates.of(tf.maximum(tf.cast(step, tf.int32) - last, 0), step)


class CurrentRows:
    """Rows and their slots, which Keras changes in every update and a ps when it reads them.

    Most of Keras's optimizers move a row also where its gradient is zero. A ps that touched every
    row in every update would do nothing else: so it keeps when a row was updated last, makes all
    missed updates in one step, and stores the result with the next update. A constraint, which
    Keras applies to every row after every update, is applied likewise.
    """

    def __init__(
        self,
        group: Group,
        devices: Sequence[str],
        steps: Callable[[int], tf.Tensor],
        rules: Sequence[UpdateRule],
    ):
        self._row = group.row
        self._stored = RowVariable(group.layout, group.row, devices, group.rule.slots)
        self.begin, self.begun = self._stored.begin, self._stored.begun
        self.stored = self._stored.stored
        self._group, self._steps = group, steps
        self._rule, self._decays = group.rule, group.decays
        self._rules = rules
        self._last = _last_updates(group.layout, devices) if group.catches_up else None
        is_moved = self._last is not None and group.rule.moves_untouched(group.decays)
        values_alone = group.layout.dim * tf.float32.size
        self.bytes_to_pull = group.row.float_bytes if is_moved else values_alone
        self._pulls = [
            not_inlined(functools.partial(self._caught_up, part)) for part in range(len(devices))
        ]

    def pull(self, part: int, rows: tf.Tensor, with_slots: bool = False) -> tf.Tensor:
        """Rows as they are now, `[u, dim]`, or `[u, size]` of `StoredRow`, float32."""
        changes = self._rule.changes_untouched if with_slots else self._rule.moves_untouched
        is_changed = self._group.is_constrained or (self._last and changes(self._decays))
        if not is_changed and with_slots:
            return self._row.decode_flat(self._stored.stored(part, rows))
        if not is_changed:
            return self._stored.read(part, rows, with_slots=False)[0]
        return self._pulls[part](rows, self._steps(part), with_slots)

    def change(
        self, part: int, rows: tf.Tensor, make: Change, step: tf.Tensor, updates: tf.Tensor
    ) -> list[tf.Operation]:
        """Updates rows, while nobody else does; `step` is the first of the updates."""
        last, values = self._read(part, rows, step, with_slots=True)
        writes = [self._stored.write(part, rows, make(values), step)]
        if self._last and last is not None:
            # Rows that have seen a later update keep its number.
            later = tf.maximum(tf.cast(updates, tf.int32) - last, 0)
            writes.append(scatter(self._last.parts[part], rows, last + later))
        return writes

    def set(
        self, part: int, rows: tf.Tensor, stored: tf.Tensor, updates: tf.Tensor
    ) -> list[tf.Operation]:
        """Overwrites rows, while nobody else changes them."""
        writes = [self._stored.set(part, rows, stored)]
        if self._last:
            writes.append(scatter(self._last.parts[part], rows, updates))
        return writes

    def slices(self) -> list[list[TensorSlice]]:
        return [self._stored.slices(), self._last.slices() if self._last else []]

    def _caught_up(
        self, part: int, rows: tf.Tensor, step: tf.Tensor, with_slots: bool
    ) -> tf.Tensor:
        # Weight decay and a constraint ask for no slot.
        reads_slots = with_slots or bool(self._last and self._rule.drifts)
        _, values = self._read(part, rows, step, reads_slots)
        return self._row.join(values) if with_slots else values[0]

    def _read(
        self, part: int, rows: tf.Tensor, step: tf.Tensor, with_slots: bool
    ) -> tuple[tf.Tensor | None, list[tf.Tensor]]:
        """When rows were updated last, if kept; and rows and slots as an update finds them."""
        last, values = None, self._stored.read(part, rows, with_slots)
        if self._last:
            last = gather(self._last.parts[part], rows)
            missed = missed_since(last, step)
            values = self._rules[part].catch_up(values[0], values[1:], missed, self._decays)
        return last, [self._group.constrained_after(step, values[0]), *values[1:]]


def _last_updates(layout: RowLayout, devices: Sequence[str]) -> PartitionedVariable:
    """For each row of a group, the number of updates after its last one; 0 for none yet."""

    def create(part: int) -> tf.Variable:
        first, end = layout.bounds(part)
        return layout.new_variable([end - first], tf.int32)

    name, shape = f"{layout.name}/last_update", (layout.total_rows,)
    return PartitionedVariable(name, shape, layout.bounds, devices, create)


def not_inlined(pull: Callable[..., Any]) -> tf.types.experimental.PolymorphicFunction:
    """A function whose calls are not replaced by its body."""
    # So the graph does not grow with what a closure is unrolled into, and the rows are read after
    # what a call waits for, which was seen not to be so otherwise.
    return tf.function(
        pull, autograph=False, reduce_retracing=True, experimental_attributes={"_noinline": True}
    )
