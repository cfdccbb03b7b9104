"""A worker's copy of what a few batches need, which is trained in its own memory."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.leases.progress import LeaseProgress
from tfps.model.stateless_model import Lookup
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.profiling import scopes
from tfps.store.lookups import ids_of_group
from tfps.store.messages import Gradients, Pulled, PulledRows
from tfps.store.parameter_store import ParameterStore
from tfps.worker.lease_batches import LeaseBatches
from tfps.worker.loop import Outcome, iterate, note_failure
from tfps.worker.prefetch import ReadBatch
from tfps.worker.step import Batch, Step


class _Values(NamedTuple):
    """Parameters and slots.

    Attributes:
        dense: The dense parameters and each of their slots, `[total]`.
        rows: By group, distinct rows with their slots, `[u, 1 + slots, dim]`.
        state: The state variables.
    """

    dense: list[tf.Tensor]
    rows: list[tf.Tensor]
    state: list[tf.Tensor]


class _RowsOfBatch(NamedTuple):
    """The distinct rows of a group that a batch asks for.

    Attributes:
        numbers: Their places among the copy's rows of the group, `[u]`.
        lines: As the batch finds them, with their slots, `[u, 1 + slots, dim]`.
    """

    numbers: tf.Tensor
    lines: tf.Tensor


class LocalCopy:
    """Parameters and slots on a worker, from one pull, through several steps, to one push.

    What is pushed is what the steps add, and the ps make as many steps with it from what others
    have made of the parameters meanwhile. Differences of parameters, and of slots that are sums
    over all gradients, add up. Slots and state that are moving averages move on from where they
    are, so that they stay averages however late a push comes.
    """

    def __init__(self, store: ParameterStore, workers: int, batches: Sequence[list[Lookup]]):
        """Pulls.

        Args:
            store: Where the parameters are.
            workers: How many do the same.
            batches: The lookups of each batch.
        """
        self._store = store
        self._workers = workers
        self._batches = batches
        with tf.name_scope(scopes.PULL):
            dense, state, self._versions = store.pull_with_slots()
        self._groups: list[PulledRows] = []
        self._inverse: list[list[tf.Tensor]] = []
        for index, group in enumerate(store.groups):
            ids = [ids_of_group(store.layout, index, lookups) for lookups in batches]
            with tf.name_scope(scopes.PULL):
                pulled = group.pull(tf.concat(ids, 0), with_slots=True)
            sizes = tf.stack([tf.size(some) for some in ids])
            self._groups.append(pulled)
            self._inverse.append(tf.split(pulled.inverse, sizes, num=len(ids)))
        self._begun = _Values(dense, [pulled.rows for pulled in self._groups], state)
        self._now = self._begun
        self._state_increment: tf.Tensor | None = None
        # Of each row, how many steps of the copy there had been after its last one; and how many
        # of them changed it.
        self._last_steps = [tf.zeros_like(pulled.ids, tf.int32) for pulled in self._groups]
        self._row_updates = list(self._last_steps)
        self._rows_of_batch: list[_RowsOfBatch] = []

    def pulled(self, batch: int) -> Pulled:
        """What a batch needs, as the steps so far have left it."""
        now, layout = self._now, self._store.layout
        dense = layout.dense.unflatten(now.dense[0]) if now.dense else []
        self._rows_of_batch, groups = [], []
        for index, pulled in enumerate(self._groups):
            rows, inverse = tf.unique(self._inverse[index][batch])
            lines = self._lines(index, rows, batch)
            self._rows_of_batch.append(_RowsOfBatch(rows, lines))
            ids = tf.gather(pulled.ids, rows)
            groups.append(PulledRows(ids, lines[:, 0], inverse, [], []))
        return Pulled(dense, now.state, groups, self._batches[batch], self._versions, None)

    def update(self, batch: int, gradients: Gradients) -> None:
        """Makes a step with the gradients of the batch that was pulled last."""
        with tf.name_scope(scopes.COMPUTE):
            self._update(batch, gradients)

    def _update(self, batch: int, gradients: Gradients) -> None:
        store, now = self._store, self._now
        step, groups = self._step(batch), gradients.pulled.groups
        summed = [
            group.sum_by_row(pulled, rows)
            for group, pulled, rows in zip(store.groups, groups, gradients.rows, strict=True)
        ]
        dense, summed = store.clipping.clip(gradients.dense, summed, groups)
        values = store.dense.stepped(now.dense, dense, step) if dense else []
        changed = []
        for index, (group, (rows, lines)) in enumerate(
            zip(store.groups, self._rows_of_batch, strict=True)
        ):
            where = rows[:, tf.newaxis]
            new = group.stepped(lines, summed[index], step)
            changed.append(tf.tensor_scatter_nd_update(now.rows[index], where, new))
            self._row_updates[index] = tf.tensor_scatter_nd_add(
                self._row_updates[index], where, tf.ones_like(rows)
            )
            self._last_steps[index] = tf.tensor_scatter_nd_update(
                self._last_steps[index], where, tf.fill(tf.shape(rows), batch + 1)
            )
        if store.state.changes:
            self._state_increment = store.state.increment(
                now.state, gradients.state, self._state_increment
            )
        self._now = _Values(values, changed, list(gradients.state))

    def push(self) -> list[tf.Tensor | tf.Operation]:
        """Makes the steps from what the ps have become; returns what is there then."""
        with tf.name_scope(scopes.PUSH):
            return self._push()

    def _push(self) -> list[tf.Tensor | tf.Operation]:
        store, steps = self._store, len(self._batches)
        begun, now = self._begun, self._now
        rows_now, row_updates = self._ended(steps)
        dense = store.dense.send_increments(begun.dense, now.dense, steps) if now.dense else []
        groups = [
            group.send_increments(pulled, rows, updates)
            for group, pulled, rows, updates in zip(
                store.groups, self._groups, rows_now, row_updates, strict=True
            )
        ]
        writes: list[tf.Tensor | tf.Operation] = []
        if self._state_increment is not None:
            share = 1.0 / self._workers
            writes.append(store.state.push(self._state_increment, steps, share))
        for part, device in enumerate(store.devices):
            with tf.device(device):
                sent = dense[part] if dense else [], [rows[part] for rows in groups]
                values, rows_of = tf.nest.map_structure(tf.identity, sent)
                arrived = tf.nest.flatten((values, rows_of))
                step = store.update_counts.add(part, arrived, self._versions, steps)
                if values:
                    writes += store.dense.merge(part, values, steps)
                for group, rows in zip(store.groups, rows_of, strict=True):
                    writes += group.merge(part, rows, step, steps)
        return writes

    def _ended(self, steps: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """By group, the rows after all steps, and how many of these changed each."""
        rows, updates = list(self._now.rows), list(self._row_updates)
        for index, group in enumerate(self._store.groups):
            if group.catches_up:
                every = tf.range(tf.size(updates[index]))
                rows[index] = self._lines(index, every, steps)
                updates[index] = tf.fill(tf.shape(every), steps)
        return rows, updates

    def _lines(self, index: int, rows: tf.Tensor, batch: int) -> tf.Tensor:
        """Some rows of a group with their slots as a batch finds them, `[u, 1 + slots, dim]`."""
        count = batch - tf.gather(self._last_steps[index], rows)
        missed = MissedUpdates.of(count, self._step(batch))
        return self._store.groups[index].caught_up(tf.gather(self._now.rows[index], rows), missed)

    def _step(self, batch: int) -> tf.Tensor:
        """Number of the update that a batch makes, scalar int64."""
        (version,) = self._versions.values()
        return tf.cast(version, tf.int64) + batch


# Number of the batch, first batch whose loss was not finite or -1, whether the lease is held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class LocalSgdLoop:
    """Pulls what the next batches need, trains them one after the other, pushes the difference.

    Known as local SGD (Stich, ICLR 2019), and for parameter servers as Geo-SGD.
    """

    def __init__(
        self, step: Step, store: ParameterStore, progress: LeaseProgress, workers: int, steps: int
    ):
        """Makes the loop of all leases.

        Args:
            step: Computes a batch's gradients.
            store: Where the parameters are.
            progress: Where each lease's progress is kept.
            workers: How many do the same.
            steps: Between a pull and its push.
        """
        self._step = step
        self._store = store
        self._progress = progress
        self._workers = workers
        self._steps = steps

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        """See `Loop`; the last batches, fewer than lie between pushes, are pushed one by one."""
        attempt = self._progress.begin(batches.place, worker)
        begin = batches.begin_of(attempt)
        read = batches.reader(begin)
        held = self._progress.lane_of(batches.place), attempt.number

        def goes_on(
            steps: int, number: tf.Tensor, bad_step: tf.Tensor, holds: tf.Tensor
        ) -> tf.Tensor:
            return holds & (number + steps <= batches.end) & (bad_step < 0)

        def train(steps: int, number: tf.Tensor, bad_step: tf.Tensor, _: tf.Tensor) -> State:
            holds = self._progress.holds(*held)
            ready = [read() for _ in range(steps)]
            total, bad_step = self._train_copy(ready, batches, number, bad_step)
            self._progress.advance(*held, tf.stack([0.0, float(steps), 0.0, total]))
            return number + steps, bad_step, holds

        state: State = begin, tf.constant(-1, tf.int64), tf.constant(True)
        _, bad_step, _ = iterate(self._steps, goes_on, train, state)
        return Outcome(attempt.number, bad_step)

    def _train_copy(
        self,
        ready: Sequence[ReadBatch],
        batches: LeaseBatches,
        number: tf.Tensor,
        bad_step: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """A pull, steps and a push.

        Returns:
            The sum over the records of the loss of their batch, which exists once all is pushed,
            and the first batch whose loss was not finite, or -1.
        """
        lookups = [self._step.lookups(batch.features, batch.labels) for batch in ready]
        copy = LocalCopy(self._store, self._workers, lookups)
        total = tf.zeros([], tf.float64)
        for index, batch in enumerate(ready):
            pulled = Batch(batch.features, batch.labels, copy.pulled(index))
            loss, gradients = self._step.gradients(pulled, batches.draw(number + index))
            copy.update(index, gradients)
            records = batch.records // batches.examples_per_record
            loss = tf.cast(loss, tf.float64)
            total += loss * tf.cast(records, tf.float64)
            bad_step = note_failure(bad_step, number + index, loss)
        with tf.control_dependencies(copy.push()):
            return tf.identity(total), bad_step
