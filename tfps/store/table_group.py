"""A group of tables on the ps, with their slots."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.current_rows import CurrentRows
from tfps.store.initializers import draw_rows, write_given_rows
from tfps.store.layout import Group
from tfps.store.learning_rates import LearningRates, rules_by_part
from tfps.store.lookups import sum_rows
from tfps.store.messages import PulledRows, SentRows, SentSteps
from tfps.store.mutex import Mutex
from tfps.store.partitioned_variable import TensorSlice, rows_at_once
from tfps.store.touched_rows import TouchedRows
from tfps.store.wire import EXACT, Wire


class TableGroup:
    """Tables of one dimension and optimizer: one gather, and one read, change and write, per ps.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.

    Attributes:
        layout: Where the rows lie.
        rule: How they are updated.
        catches_up: Whether rows make up for the updates that they were no part of.
    """

    def __init__(
        self,
        group: Group,
        devices: Sequence[str],
        seed: int,
        steps: Callable[[int], tf.Tensor],
        wire: Wire = EXACT,
        rates: LearningRates | None = None,
    ):
        """Creates every part on its ps.

        Args:
            group: The tables.
            devices: One per ps.
            seed: The run's seed.
            steps: Given the index of a ps, the number of updates of it so far, scalar int64.
            wire: How values travel.
            rates: The learning rates, None where they are the rule's own.
        """
        self.layout = layout = group.layout
        self.rule = rule = group.rule
        self.catches_up = group.catches_up
        self._devices = devices
        self._group = group
        self._decays = group.decays
        self._wire = wire
        self._rules = rules_by_part(rule, rates, len(devices))
        self._rows = CurrentRows(group, devices, steps, self._rules)
        mutexes = [Mutex(layout.name, device) for device in devices]
        self._apply, self._merge = (
            [mutex.guard(functools.partial(change, part)) for part, mutex in enumerate(mutexes)]
            for change in (self._applied, self._merged)
        )
        self._touched: list[TouchedRows | None] = [None] * len(devices)
        if layout.tracks_touched(len(rule.slots)):
            self._touched = [
                TouchedRows(layout, part, device) for part, device in enumerate(devices)
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
        return self.pull_found(self.find(ids), after, with_slots)

    def pull_found(
        self, found: PulledRows, after: Sequence[tf.Tensor] = (), with_slots: bool = False
    ) -> PulledRows:
        """Fetches the rows of ids of which `find` has said where they are; see `pull`."""
        sent = []
        for part, rows in enumerate(found.owned):
            with tf.device(self._devices[part]), tf.control_dependencies(after):
                sent.append(self.read_part(part, rows, with_slots))
        return self.joined(found, sent)

    def read_part(self, part: int, rows: tf.Tensor, with_slots: bool = False) -> tf.Tensor:
        """Rows of a part as they travel, under the device of its ps.

        Args:
            part: Index of the ps.
            rows: Their numbers within the part, `[u]`.
            with_slots: Whether each row has its slots behind it.

        Returns:
            `[u, dim]`, or `[u, 1 + slots, dim]`.
        """
        return self._wire.send(self._rows.pull(part, rows, with_slots))

    def joined(self, found: PulledRows, parts: Sequence[tf.Tensor]) -> PulledRows:
        """Rows that `find` found, with the values that `read_part` gave of each ps."""
        received = [self._wire.receive(part) for part in parts]
        rows = tf.dynamic_stitch(found.where, received) if found.where else received[0]
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

        Of a rule that changes nothing no row is sent.

        Args:
            pulled: What `pull` returned.
            gradient: One row per distinct row, `[u, dim]`.
        """
        if self.rule.changes_nothing:
            nothing = self._wire.send(gradient[:0])
            return [SentRows(owned[:0], nothing) for owned in pulled.owned]
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

    def caught_up(self, lines: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """What missed updates make of rows with their slots `[u, 1 + slots, dim]`, on a worker."""
        return self._group.caught_up(self._rules[0], lines, missed)

    def stepped(self, lines: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """What a step makes of distinct rows with their slots `[u, 1 + slots, dim]`, on a worker.

        Args:
            lines: The rows.
            gradient: `[u, dim]`.
            step: Number of updates before this one, scalar int64.
        """
        values, *slots = tf.unstack(lines, self._rows.lines, 1)
        return tf.stack(self._stepped(self._rules[0], values, slots, gradient, step), 1)

    def send_increments(
        self, pulled: PulledRows, after: tf.Tensor, updates: tf.Tensor
    ) -> list[SentSteps]:
        """What steps on a worker add to rows and their slots as it travels, for each ps.

        Args:
            pulled: What `pull` returned, with slots.
            after: What the steps have made of it, `[u, 1 + slots, dim]`.
            updates: How many steps changed each row, `[u]` int32.
        """
        before, now = (tf.unstack(lines, self._rows.lines, 1) for lines in (pulled.rows, after))
        counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        added = self.send(pulled, tf.stack(self.rule.increments(before, now, counts), 1))
        where = pulled.where or [tf.range(tf.size(updates))]
        asked = self.rule.averages and not self.catches_up
        return [
            SentSteps(rows, increment, [tf.gather(updates, some)] * asked)
            for (rows, increment), some in zip(added, where, strict=True)
        ]

    def merge(
        self, part: int, sent: SentSteps, step: tf.Tensor, steps: int | tf.Tensor
    ) -> list[tf.Tensor]:
        """Makes a worker's steps from what rows of a part have become; under its ps's device.

        Args:
            part: Index of the ps.
            sent: What `send_increments` gave for it, arrived on that ps.
            step: Number of updates before these, scalar int64 on that ps.
            steps: How many steps the worker made.

        Returns:
            What is there once it is written.
        """
        counts = tf.cast(steps, tf.float32)
        for updates in sent.updates:
            counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        increment = tf.cast(sent.increment, tf.float32)
        return [self._merge[part](sent.rows, increment, counts, step, step + steps)]

    def begin_rows(self, table: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """Gives rows of a table values to begin with, and what their slots start from.

        Args:
            table: Index of the table.
            ids: Of its rows, `[n]` int64.
            rows: Their values, `[n, dim]` float32.
        """
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                self._rows.begin(part, tf.constant(numbers), tf.constant(rows[mine]))

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        layout = self.layout
        values = np.empty([layout.tables[table].rows, layout.dim], np.float32)
        largest = self.rows_at_once()
        for part, device in enumerate(self._devices):
            with tf.device(device):
                for ids, rows in layout.runs_of(table, part, largest):
                    if len(ids):
                        numbers = tf.constant(rows, layout.id_dtype)
                        values[ids] = self._rows.pull(part, numbers).numpy()
        return values

    def read_run(self, part: int, first: int, count: int) -> tf.Tensor:
        """Rows of a part side by side, as they are now, `[count, dim]` float32.

        To be called under the device of the part's ps, where they stay.

        Args:
            part: Index of the ps.
            first: Number of the first row within the part.
            count: Number of rows.
        """
        numbers = tf.range(first, first + count, dtype=self.layout.id_dtype)
        return self._rows.pull(part, numbers)

    def rows_at_once(self, rows: int = 0) -> int:
        """How many rows a ps reads at once when it reads many.

        Args:
            rows: How many it reads in all, if that is to be done in few turns.
        """
        return rows_at_once(self._rows.bytes_to_pull, rows)

    def read_rows(self, table: int, ids: np.ndarray) -> np.ndarray:
        """Some rows of a table, `[n, dim]` float32, on the chief.

        Args:
            table: Index of the table.
            ids: Of the rows, `[n]` int64.
        """
        values = np.empty([len(ids), self.layout.dim], np.float32)
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                rows = tf.constant(numbers, self.layout.id_dtype)
                values[mine] = self._rows.pull(part, rows).numpy()
        return values

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the group."""
        rows, last_updates = self._rows.slices()
        return [
            *(
                dataclasses.replace(slice_, touched=touched)
                for slice_, touched in zip(rows, self._touched, strict=True)
            ),
            *last_updates,
        ]

    def _by_part(self, table: int, ids: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Where rows of a table lie: parts, which of the ids are theirs, and their rows in them."""
        numbers = self.layout.rows_of(table, ids)
        for part in range(len(self._devices)):
            first, end = self.layout.bounds(part)
            mine = (numbers >= first) & (numbers < end)
            if mine.any():
                yield part, mine, numbers[mine] - first

    def _applied(
        self,
        part: int,
        numbers: tf.Tensor,
        gradient: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """What the mutex guards of `apply`."""
        rule = self._rules[part].scaled(scale)
        writes = self._rows.change(
            part,
            numbers,
            lambda values: self._stepped(rule, values[0], values[1:], gradient, step),
            step,
            step + 1,
        )
        return tf.constant(True), self._marked(part, numbers, writes)

    def _stepped(
        self,
        rule: UpdateRule,
        values: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
    ) -> list[tf.Tensor]:
        if self._decays:
            values -= rule.decay(step) * values
        return self._constrained(rule.sparse(values, slots, gradient, step))

    def _merged(
        self,
        part: int,
        numbers: tf.Tensor,
        increment: tf.Tensor,
        counts: tf.Tensor,
        step: tf.Tensor,
        updates: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """What the mutex guards of `merge`; `updates` are those that there have been then."""
        increments = tf.unstack(increment, self._rows.lines, 1)
        writes = self._rows.change(
            part,
            numbers,
            lambda values: self._constrained(self.rule.merged(values, increments, counts)),
            step,
            updates,
        )
        return tf.constant(True), self._marked(part, numbers, writes)

    def _constrained(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Rows and slots after an update, the rows as their constraint leaves them."""
        rows, *slots = values
        return [self._group.constrained(rows), *slots]

    def _marked(self, part: int, rows: tf.Tensor, writes: list[tf.Operation]) -> list[tf.Operation]:
        """Marks rows as touched after the writes, where they are; returns what writes."""
        # While the mutex is held: a worker that waits for the push waits for nothing else.
        return [touched.mark(rows, writes)] if (touched := self._touched[part]) else writes
