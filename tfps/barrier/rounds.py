"""Rounds: the gradients of several workers are averaged and applied once, behind a barrier."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.barrier.barrier import Barrier
from tfps.barrier.contributions import Contributions, Decision
from tfps.barrier.loop import Event, LoopState, MemberState, MessageLoop, Transition
from tfps.barrier.messages import CHANGE, Message
from tfps.leases.progress import LeaseProgress
from tfps.store.clipping import PartClipping
from tfps.store.messages import Gradients, PartGradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.run_state import LossScale


class RoundUpdate:
    """Makes of a round the step that one process would make of all its records.

    The mean is clipped as an optimizer clips the gradient of one batch: norms are those of the mean
    over all ps. Where the loss is scaled, a mean that is not finite on some ps changes no parameter
    on any, and halves the scale once, as `keras.optimizers.LossScaleOptimizer` does with a batch.
    The state changes nevertheless: it comes of the forward pass.
    """

    def __init__(self, store: ParameterStore, contributions: Contributions, members: int):
        self._store = store
        self._contributions = contributions
        self._members = members
        self._clipping = PartClipping(store.layout, store.groups, store.devices)

    def apply(self, decided: tf.Tensor) -> list[tf.Tensor | tf.Operation]:
        """Applies a round, its attempts and weights, `[1 + 2 * members]` float64, on every ps."""
        store = self._store
        writes: list[tf.Tensor | tf.Operation] = []
        means: list[PartGradients] = []
        arrived: list[tf.Tensor] = []
        for part, device in enumerate(store.devices):
            with tf.device(device):
                here = tf.identity(decided)
                mean, state = self._contributions.take_mean(part, self._decision(here))
                writes += [store.state.add(change) for change in state]
            arrived.append(here)
            means.append(mean)
        finite = self._finite(means, store.loss_scale) if store.loss_scale else None
        if store.loss_scale and finite is not None:
            writes.append(store.loss_scale.update(store.loss_scale.pull(), finite))
        for part, mean in enumerate(self._clipping.clip(means)):
            writes += self._apply(part, mean, arrived[part], finite)
        return writes

    def _decision(self, decided: tf.Tensor) -> Decision:
        """What was decided, as it has arrived on a ps."""
        round_, attempts, weights = tf.split(decided, [1, self._members, self._members])
        return Decision(
            tf.cast(round_[0], tf.int64), tf.cast(attempts, tf.int64), tf.cast(weights, tf.float32)
        )

    def _finite(self, means: Sequence[PartGradients], scale: LossScale) -> tf.Tensor:
        """Whether the mean is finite on all ps, scalar bool, where the loss scale is."""
        found = []
        for device, mean in zip(self._store.devices, means, strict=True):
            with tf.device(device):
                gradients = [*mean.dense, *(rows.gradient for rows in mean.groups)]
                found.append(scale.all_finite(gradients))
        with tf.device(self._store.devices[self._store.layout.loss_scale_part]):
            return tf.reduce_all(tf.stack(found))

    def _apply(
        self, part: int, mean: PartGradients, arrived: tf.Tensor, finite: tf.Tensor | None
    ) -> list[tf.Tensor | tf.Operation]:
        """Applies a ps's part of the mean, unless it is not finite: what is there once it is."""
        store = self._store

        def apply() -> list[tf.Tensor | tf.Operation]:
            step = store.update_counts.add(part, [arrived], pulled_at={})
            return store.apply(part, mean.dense, mean.groups, step)

        def applied() -> tf.Tensor:
            with tf.device(store.devices[part]), tf.control_dependencies(apply()):
                return tf.constant(True)

        with tf.device(store.devices[part]):
            if finite is None:
                return apply()
            return [tf.cond(tf.identity(finite), applied, lambda: tf.constant(False))]


class SyncBarrier(Barrier):
    """The barrier of synchronous training.

    When every member that is awaited has contributed, or enough members have, every ps applies the
    mean of what they sent, weighted by records, once, and adds up the progress of their leases.
    Then each gets a token.

    A contribution is announced to the barrier loop once it is on every ps: a worker that dies while
    it sends leaves nothing half-applied. A contribution counts for the round of its token or for
    none: what comes when that round has closed is late, and its batch is trained again. Progress is
    recorded with the update itself: no batch is trained twice, and none is left out, whatever is
    lost when.
    """

    has_rounds = True

    def __init__(self, store: ParameterStore, progress: LeaseProgress, members: int, backups: int):
        self._contributions = Contributions(store, 4 * members + 16)
        loop = _SyncLoop(store, progress, self._contributions, members, backups)
        super().__init__(store, progress, loop)

    def _send(
        self, token: tf.Tensor, gradients: Gradients, trained: tf.Tensor
    ) -> tuple[list[tf.Tensor | tf.Operation], tf.Tensor]:
        return self._contributions.send(token, gradients, trained)


class _SyncLoop(MessageLoop):
    """Rounds: counts members that arrived and that are awaited, and closes the round."""

    def __init__(
        self,
        store: ParameterStore,
        progress: LeaseProgress,
        contributions: Contributions,
        members: int,
        backups: int,
    ):
        super().__init__(members, store.devices[0], has_backups=backups > 0)
        self._progress = progress
        self._update = RoundUpdate(store, contributions, members)
        self._needed = max(1, members - backups)
        with tf.device(self._device):
            # By member: records of its batch, change of its lease's progress.
            zeros = tf.zeros([members, 1 + CHANGE], tf.float64)
            self._arrived = tf.Variable(zeros, trainable=False)

    def _first_state(self) -> LoopState:
        # To let members go is to update the parameters: somebody must have arrived.
        return self._take_messages(LoopState.at_first(counts=2))

    def _classify(self, state: LoopState, message: Message, before: tf.Tensor) -> tf.Tensor:
        is_in_time = tf.equal(message.round, state.round)
        events = [tf.constant(each, tf.int64) for each in (Event.ARRIVES, Event.IS_LATE)]
        return tf.where(is_in_time, *events)

    def _count(
        self, state: LoopState, transition: Transition
    ) -> tuple[LoopState, list[tf.Operation]]:
        message = transition.message
        arrived, awaited = (
            count + transition.change_of(each)
            for count, each in zip(
                state.counts, (MemberState.ARRIVED, MemberState.AWAITED), strict=True
            )
        )
        is_enough = arrived >= tf.minimum(tf.constant(self._needed, tf.int64), arrived + awaited)
        # A closure that begins again contributes to no round until it has.
        is_dropped = transition.is_a(Event.IS_LATE) & (message.round >= 0)
        after = state._replace(
            dropped=state.dropped + tf.cast(is_dropped, tf.int64),
            is_due=(arrived > 0) & is_enough,
            counts=(arrived, awaited),
        )
        held = self._arrived.sparse_read(message.member)
        row = tf.where(transition.is_a(Event.ARRIVES), message.trained, held)
        self._arrived.scatter_update(tf.IndexedSlices(row, message.member))
        return after, []

    def _let_go(self, state: LoopState) -> LoopState:
        """Closes the round: applies what has arrived, and opens the next one."""
        with tf.device(self._device):
            states = self._states()
            has_arrived = tf.equal(states, MemberState.ARRIVED)
            arrived = tf.where(has_arrived[:, tf.newaxis], self._arrived.read_value(), 0.0)
            weights = arrived[:, 0] / tf.reduce_sum(arrived[:, 0])
            attempts = tf.cast(self._attempts.read_value(), tf.float64)
            # One tensor: each one that travels costs a message.
            decided = tf.concat([[tf.cast(state.round, tf.float64)], attempts, weights], 0)
        writes = self._update.apply(decided)
        with tf.device(self._device):
            writes.append(self._progress.add(arrived[:, 1:]))
            with tf.control_dependencies(writes):
                state = state._replace(round=state.round + 1, is_due=tf.constant(False))
            states = self._after(Event.ROUND_CLOSES, states)
            with tf.control_dependencies([self._write_states(state, states)]):
                ready = tf.where(has_arrived)[:, 0]
            self._give_next(ready, state.round)
            awaited = tf.math.count_nonzero(tf.equal(states, MemberState.AWAITED))
            return state._replace(counts=(tf.zeros([], tf.int64), awaited))
