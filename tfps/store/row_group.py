"""A group of tables on the ps, with their slots: what is made of rows that were found."""

import abc
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.update_rule import RowUpdate, Tensors, UpdateRule
from tfps.store.current_rows import CurrentRows
from tfps.store.group_layout import AskedIds, RowLayout
from tfps.store.layout import Group
from tfps.store.messages import EXACT, PulledRows, ReadRows, SentRows, SentSteps, Wire, sum_rows
from tfps.store.mutex import Change, Mutex
from tfps.store.partitioned_variable import TensorSlice
from tfps.store.run_state import LearningRates, rules_by_part


class RowGroup(abc.ABC):
    """Tables of one dimension and optimizer: one gather, and one read, change and write, per ps.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.
    """

    layout: RowLayout

    def __init__(
        self,
        group: Group,
        devices: Sequence[str],
        seed: int,
        steps: Callable[[int], tf.Tensor],  # given the index of a ps, its number of updates so far
        wire: Wire = EXACT,
        rates: LearningRates | None = None,  # None where they are the rule's own
    ):
        self.layout, self.rule, self.row = group.layout, group.rule, group.row
        self.gradients, self.catches_up = group.gradients, group.catches_up
        self._group, self._devices, self._steps, self._wire = group, devices, steps, wire
        self._rules = rules_by_part(group.rule, rates, len(devices))
        self._rows = CurrentRows(group, devices, steps, self._rules)
        self._mutexes = [Mutex(group.layout.name, device) for device in devices]
        self._apply, self._merge = self._guarded(self._applied), self._guarded(self._merged)
        self._create(seed)

    @abc.abstractmethod
    def _create(self, seed: int) -> None:
        """Makes what only this kind of group has on its ps, and initial values."""

    @abc.abstractmethod
    def find(self, asked: AskedIds) -> PulledRows:
        """What each ps is asked for, each distinct row once; it takes no ps to know."""

    @abc.abstractmethod
    def read_part(
        self, part: int, owned: tf.Tensor, with_slots: bool = False, is_training: bool = True
    ) -> ReadRows:
        """Reads the rows of a part that it is asked for, under the device of its ps."""

    @abc.abstractmethod
    def tables_of(self, pulled: PulledRows) -> tf.Tensor:
        """The index in the group of the table of each row that was pulled, `[u]` int32."""

    @abc.abstractmethod
    def tables_in_part(self, part: int, numbers: tf.Tensor) -> tf.Tensor:
        """The table of rows of a part that `send` gave, `[u]` int32; -1 for a lost row."""

    @abc.abstractmethod
    def sample_rows(self, table: int, most: int) -> np.ndarray:
        """At most `most` rows of a table, evenly spread, `[n, dim]` float32, on the chief."""

    @abc.abstractmethod
    def slices(self) -> list[TensorSlice]: ...

    def pull(
        self, asked: AskedIds, with_slots: bool = False, is_training: bool = True
    ) -> PulledRows:
        return self.pull_found(self.find(asked), with_slots, is_training)

    def pull_found(
        self, found: PulledRows, with_slots: bool = False, is_training: bool = True
    ) -> PulledRows:
        """Fetches the rows that `find` found; see `pull`."""
        parts = []
        for part, owned in enumerate(found.owned):
            with tf.device(self._devices[part]):
                parts.append(self.read_part(part, owned, with_slots, is_training))
        return self.joined(found, parts)

    def joined(self, found: PulledRows, parts: Sequence[ReadRows]) -> PulledRows:
        """Rows that `find` found, with what `read_part` gave of each ps, on a worker."""
        received = [self._wire.receive(part.rows) for part in parts]
        rows = tf.dynamic_stitch(found.where, received) if found.where else received[0]
        return found._replace(rows=rows, owned=[part.owned for part in parts])

    def sum_by_row(self, pulled: PulledRows, gradient: tf.Tensor) -> tf.Tensor:
        """The gradient of each distinct row `[u, width]`, from that of every id asked for."""
        return sum_rows(gradient, pulled.inverse, tf.size(pulled.ids))

    def send(self, pulled: PulledRows, gradient: tf.Tensor) -> list[SentRows]:
        """The gradient `[u, width]` of what was pulled as it travels, for each ps."""
        if self.rule.changes_nothing:
            nothing = self._wire.send(gradient[:0])
            nobody = tf.zeros([0], self.layout.id_dtype)
            return [SentRows(nobody, nothing) for _ in pulled.owned]
        if not pulled.where:
            return [SentRows(pulled.owned[0], self._wire.send(gradient))]
        return [
            SentRows(owned, self._wire.send(tf.gather(gradient, where)))
            for owned, where in zip(pulled.owned, pulled.where, strict=True)
        ]

    def apply(
        self, part: int, sent: SentRows, step: tf.Tensor, scale: tf.Tensor | None = None
    ) -> list[tf.Tensor]:
        """Applies the gradient of distinct rows of a part; under the device of its ps."""
        gradient = tf.cast(sent.gradient, tf.float32)
        return [self._apply[part](sent.rows, gradient, step, scale)]

    def caught_up(self, lines: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """Rows with their slots `[u, size]` after missed updates, on a worker."""
        return self._group.caught_up(self._rules[0], lines, missed)

    def stepped(self, lines: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """Distinct rows with their slots `[u, size]` after a step, on a worker."""
        values, *slots = self.row.split(lines)
        return self.row.join(self._stepped(self._rules[0], values, slots, gradient, step))

    def send_increments(
        self, pulled: PulledRows, after: tf.Tensor, updates: tf.Tensor
    ) -> list[SentSteps]:
        """What steps on a worker add to rows and slots as it travels, for each ps."""
        before, now = (self.row.split(lines) for lines in (pulled.rows, after))
        counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        added = self.send(pulled, self.row.join(self.rule.increments(before, now, counts)))
        where = pulled.where or [tf.range(tf.size(updates))]
        asked = self.rule.averages and not self.catches_up
        return [
            SentSteps(rows, increment, [tf.gather(updates, some)] * asked)
            for (rows, increment), some in zip(added, where, strict=True)
        ]

    def merge(
        self, part: int, sent: SentSteps, step: tf.Tensor, steps: int | tf.Tensor
    ) -> list[tf.Tensor]:
        """Adds a worker's increments to rows of a part; under the device of its ps."""
        counts = tf.cast(steps, tf.float32)
        for updates in sent.updates:
            counts = tf.cast(updates, tf.float32)[:, tf.newaxis]
        increment = tf.cast(sent.increment, tf.float32)
        return [self._merge[part](sent.rows, increment, counts, step, step + steps)]

    def _guarded(self, change: Change) -> list[tf.types.experimental.PolymorphicFunction]:
        return [
            mutex.guard(functools.partial(change, part)) for part, mutex in enumerate(self._mutexes)
        ]

    def _applied(
        self,
        part: int,
        numbers: tf.Tensor,
        gradient: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        rule = self._rules[part].scaled(scale)
        numbers, pick, noted = self._found(part, numbers, step)
        gradient = pick(gradient)
        writes = self._rows.change(
            part,
            numbers,
            lambda values: self._stepped(rule, values[0], values[1:], gradient, step),
            step,
            step + 1,
        )
        return tf.constant(True), [*noted, *self._marked(part, numbers, writes)]

    def _stepped(
        self,
        rule: UpdateRule,
        values: tf.Tensor,
        slots: Tensors,
        gradient: tf.Tensor,
        step: tf.Tensor,
    ) -> list[tf.Tensor]:
        if self._group.decays:
            values -= rule.decay(step) * values
        squares = self.gradients.squares_for_rule(gradient)
        update = RowUpdate(values, slots, self.gradients.gradient(gradient), step, squares)
        return self._constrained(rule.sparse(update))

    def _merged(
        self,
        part: int,
        numbers: tf.Tensor,
        increment: tf.Tensor,
        counts: tf.Tensor,
        step: tf.Tensor,
        updates: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        numbers, pick, noted = self._found(part, numbers, updates - 1)
        counts = pick(counts) if counts.shape.rank else counts
        increments = self.row.split(pick(increment))
        writes = self._rows.change(
            part,
            numbers,
            lambda values: self._constrained(self.rule.merged(values, increments, counts)),
            step,
            updates,
        )
        return tf.constant(True), [*noted, *self._marked(part, numbers, writes)]

    def _constrained(self, values: Tensors) -> list[tf.Tensor]:
        rows, *slots = values
        return [self._group.constrained(rows), *slots]

    def _found(
        self, part: int, numbers: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor], list[tf.Operation]]:
        """Numbers of the rows that a push changes; what picks theirs; what records it."""
        return numbers, lambda values: values, []

    def _marked(self, part: int, rows: tf.Tensor, writes: list[tf.Operation]) -> list[tf.Operation]:
        """Records after the writes that rows were changed."""
        return writes
