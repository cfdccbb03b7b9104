"""A group of tables on the ps, with their slots."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.optimizers.update_rule import UpdateRule
from tfps.store.group_layout import GroupLayout
from tfps.store.initializers import draw_rows, write_given_rows
from tfps.store.lookups import sum_rows
from tfps.store.messages import PulledRows, SentRows, SentSteps
from tfps.store.mutex import Mutex
from tfps.store.partitioned_variable import CHUNK_BYTES, TensorSlice
from tfps.store.row_variable import RowVariable
from tfps.store.touched_rows import TouchedRows
from tfps.store.wire import EXACT, Wire

_PLACE_BYTES = 64  # what the chief computes with for each row that it reads


class TableGroup:
    """Tables of one dimension and optimizer: one gather, and one read, change and write, per ps.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.

    Attributes:
        layout: Where the rows lie.
        rule: How they are updated.
    """

    def __init__(
        self,
        layout: GroupLayout,
        devices: Sequence[str],
        rule: UpdateRule,
        decays: bool,
        seed: int,
        wire: Wire = EXACT,
    ):
        """Creates every part on its ps.

        Args:
            layout: Where the rows lie.
            devices: One per ps.
            rule: How they are updated.
            decays: Whether weight decay applies to them.
            seed: The run's seed.
            wire: How values travel.
        """
        self.layout = layout
        self.rule = rule
        self._devices = devices
        self._decays = decays
        self._wire = wire
        self._rows = RowVariable(layout, devices, rule.slots)
        mutexes = [Mutex(layout.name, device) for device in devices]
        self._apply, self._merge = (
            [mutex.guard(functools.partial(change, part)) for part, mutex in enumerate(mutexes)]
            for change in (self._applied, self._merged)
        )
        self._touched: list[TouchedRows | None] = [None] * len(devices)
        if layout.tracks_touched(len(rule.slots)):
            bounds = map(layout.bounds, range(layout.parts))
            self._touched = [
                TouchedRows(end - first, device)
                for (first, end), device in zip(bounds, devices, strict=True)
            ]
        for part, device in enumerate(devices):
            with tf.device(device):
                draw_rows(layout, part, seed, functools.partial(self._rows.begin, part))
        write_given_rows(layout, devices, seed, self._rows.begin)

    def pull(
        self, ids: tf.Tensor, after: Sequence[tf.Tensor] = (), with_slots: bool = False
    ) -> PulledRows:
        """Fetches the rows of ids in the group `[n]`, each distinct row once.

        Args:
            ids: What is asked for.
            after: What each ps waits for before it reads.
            with_slots: Whether each row has its slots behind it, `[u, 1 + slots, dim]`.
        """
        found = self.find(ids)
        pulled = [
            self._gather(part, rows, after, with_slots) for part, rows in enumerate(found.owned)
        ]
        rows = tf.dynamic_stitch(found.where, pulled) if found.where else pulled[0]
        return found._replace(rows=rows)

    def find(self, ids: tf.Tensor) -> PulledRows:
        """Where the rows of ids in the group `[n]` are: as `pull`, but with no values in `rows`."""
        nothing = tf.zeros([0, self.layout.dim])
        distinct, inverse = tf.unique(ids)
        rows, owner = self.layout.locate(distinct)
        if self.layout.parts == 1:
            return PulledRows(distinct, nothing, inverse, [rows], [])
        firsts = [self.layout.bounds(part)[0] for part in range(self.layout.parts)]
        numbers = rows - tf.gather(tf.constant(firsts, rows.dtype), owner)
        owned = tf.dynamic_partition(numbers, owner, self.layout.parts)
        where = tf.dynamic_partition(tf.range(tf.size(rows)), owner, self.layout.parts)
        return PulledRows(distinct, nothing, inverse, owned, where)

    def sum_by_row(self, pulled: PulledRows, gradient: tf.Tensor) -> tf.Tensor:
        """The gradient of each distinct row `[u, dim]`, from that of every id asked for.

        Args:
            pulled: What `pull` returned.
            gradient: One row per id asked for, `[n, dim]`.
        """
        return sum_rows(gradient, pulled.inverse, tf.size(pulled.ids))

    def send(self, pulled: PulledRows, gradient: tf.Tensor) -> list[SentRows]:
        """The gradient of what was pulled as it travels, for each ps.

        Args:
            pulled: What `pull` returned.
            gradient: One row per distinct row, `[u, dim]`.
        """
        if not pulled.where:
            return [SentRows(pulled.owned[0], self._wire.send(gradient))]
        return [
            SentRows(owned, self._wire.send(tf.gather(gradient, where)))
            for owned, where in zip(pulled.owned, pulled.where, strict=True)
        ]

    def apply(
        self, part: int, sent: SentRows, step: tf.Tensor, scale: tf.Tensor | None = None
    ) -> list[tf.Tensor]:
        """Applies the gradient of distinct rows of a part; under the device of its ps.

        Args:
            part: Index of the ps.
            sent: What `send` gave for it, or any gradient of distinct rows of that part, arrived
                on that ps.
            step: Number of updates before this one, scalar int64 on that ps.
            scale: Of the learning rate, scalar float32; None for 1.

        Returns:
            What is there once it is written.
        """
        gradient = tf.cast(sent.gradient, tf.float32)
        return [self._apply[part](sent.rows, gradient, step, scale)]

    def stepped(self, lines: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """What a step makes of distinct rows with their slots `[u, 1 + slots, dim]`, on a worker.

        Args:
            lines: The rows.
            gradient: `[u, dim]`.
            step: Number of updates before this one, scalar int64.
        """
        values, *slots = tf.unstack(lines, self._rows.lines, 1)
        if self._decays:
            values -= self.rule.decay(step) * values
        return tf.stack(self.rule.sparse(values, slots, gradient, step), 1)

    def send_increments(
        self, pulled: PulledRows, after: tf.Tensor, updates: tf.Tensor
    ) -> list[SentSteps]:
        """What steps on a worker add to rows and their slots as it travels, for each ps.

        Args:
            pulled: What `pull` returned, with slots.
            after: What the steps have made of it, `[u, 1 + slots, dim]`.
            updates: How many steps touched each row, `[u]` int32.
        """
        before, now = (tf.unstack(lines, self._rows.lines, 1) for lines in (pulled.rows, after))
        counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        added = self.send(pulled, tf.stack(self.rule.increments(before, now, counts), 1))
        where = pulled.where or [tf.range(tf.size(updates))]
        return [
            SentSteps(rows, increment, [tf.gather(updates, some)] * self.rule.averages)
            for (rows, increment), some in zip(added, where, strict=True)
        ]

    def merge(self, part: int, sent: SentSteps) -> list[tf.Tensor]:
        """Makes a worker's steps from what rows of a part have become; under its ps's device.

        Args:
            part: Index of the ps.
            sent: What `send_increments` gave for it, arrived on that ps.

        Returns:
            What is there once it is written.
        """
        counts = tf.ones([])
        for updates in sent.updates:
            counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        return [self._merge[part](sent.rows, tf.cast(sent.increment, tf.float32), counts)]

    def signature(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of the group to fit."""
        return {"tables": [table.name for table in self.layout.tables], **self.rule.signature()}

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        layout = self.layout
        values = np.empty([layout.tables[table].rows, layout.dim], np.float32)
        largest = max(1, CHUNK_BYTES // max(4 * layout.dim, _PLACE_BYTES))
        for part, device in enumerate(self._devices):
            with tf.device(device):
                for ids, rows in layout.runs_of(table, part, largest):
                    if len(ids):
                        lines = tf.constant(rows * self._rows.lines)
                        values[ids] = self._rows.read(part, lines).numpy()
        return values

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the group."""
        return [
            dataclasses.replace(slice_, touched=touched)
            for slice_, touched in zip(self._rows.slices(), self._touched, strict=True)
        ]

    def _gather(
        self, part: int, rows: tf.Tensor, after: Sequence[tf.Tensor], with_slots: bool
    ) -> tf.Tensor:
        """Rows of a part, `[u, dim]`, or `[u, 1 + slots, dim]` with their slots."""
        with tf.device(self._devices[part]), tf.control_dependencies(after):
            lines = self._rows.all_lines(rows) if with_slots else self._rows.first_lines(rows)
            sent = self._wire.send(self._rows.read(part, lines))
        return self._wire.receive(sent)

    def _applied(
        self,
        part: int,
        numbers: tf.Tensor,
        gradient: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """What the mutex guards of `apply`."""
        rule, line = self.rule.scaled(scale), self._rows.first_lines(numbers)
        lines = [line, *(line + k for k in range(1, self._rows.lines))]
        values, *slots = [self._rows.read(part, each) for each in lines]
        if self._decays:
            values -= rule.decay(step) * values
        changed = rule.sparse(values, slots, gradient, step)
        writes = [
            self._rows.write(part, each, new) for each, new in zip(lines, changed, strict=True)
        ]
        return tf.constant(True), self._marked(part, numbers, writes)

    def _merged(
        self, part: int, numbers: tf.Tensor, increment: tf.Tensor, counts: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """What the mutex guards of `merge`."""
        count, lines = self._rows.lines, self._rows.all_lines(numbers)
        values = tf.unstack(self._rows.read(part, lines), count, 1)
        merged = self.rule.merged(values, tf.unstack(increment, count, 1), counts)
        written = self._rows.write(part, lines, tf.stack(merged, 1))
        return tf.constant(True), self._marked(part, numbers, [written])

    def _marked(self, part: int, rows: tf.Tensor, writes: list[tf.Operation]) -> list[tf.Operation]:
        """Marks rows as touched after the writes, where they are; returns what writes."""
        # While the mutex is held: a worker that waits for the push waits for nothing else.
        return [touched.mark(rows, writes)] if (touched := self._touched[part]) else writes
