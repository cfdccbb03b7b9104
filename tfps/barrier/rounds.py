"""Rounds: the gradients of several workers are averaged and applied once, behind a barrier."""

from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.barrier import CHANGE, Barrier
from tfps.barrier.contributions import Contributions, Decision
from tfps.barrier.member_state import Happening, Standing, after_closing
from tfps.leases.progress import LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore


class _State(NamedTuple):
    """What the keeper carries from event to event, beside the variables; scalars."""

    round: tf.Tensor  # int64
    dropped: tf.Tensor  # int64
    is_stopped: tf.Tensor  # bool
    arrived: tf.Tensor  # int64: how many have
    awaited: tf.Tensor  # int64: how many are


class SyncBarrier(Barrier):
    """The barrier of synchronous training.

    When every member who is expected has contributed, or enough have, every ps applies the mean of
    what they sent, weighted by records, once, and adds up the progress of their leases. Then each
    gets a token.

    A contribution is announced to the keeper once it is on every ps: a worker that dies while it
    sends leaves nothing half-applied. It counts for the round of its token or for none: what comes
    when that has closed is late, and its batch is trained again. Progress is recorded with the
    update itself: no batch is trained twice, and none is left out, whatever is lost when.
    """

    has_rounds = True

    def __init__(self, store: ParameterStore, progress: LeaseProgress, members: int, backups: int):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            progress: How far the members' leases have come.
            members: Slots of leases.
            backups: So many of the members are not waited for.
        """
        super().__init__(store, progress, members, has_backups=backups > 0)
        self._needed = max(1, members - backups)
        self._contributions = Contributions(store, 4 * members + 16)
        with tf.device(self._device):
            # By member: records of its batch, change of its lease's progress.
            zeros = tf.zeros([members, 1 + CHANGE], tf.float64)
            self._arrived = tf.Variable(zeros, trainable=False)

    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        return self._contributions.send(token, gradients)

    def _keep(self) -> tf.Tensor:
        """The keeper; returns the number of rounds that have closed."""
        with tf.device(self._device):
            zero = tf.zeros([], tf.int64)
            first = _State(zero, zero, tf.constant(False), zero, zero)
            last = tf.while_loop(
                lambda *state: ~_State(*state).is_stopped,
                lambda *state: self._collected(self._closed(_State(*state))),
                self._collected(first),
            )
            return last[0]

    def _collected(self, state: _State) -> _State:
        """Takes events until the round can be closed."""

        def goes_on(*values: tf.Tensor) -> tf.Tensor:
            with tf.device(self._device):
                state = _State(*values)
                possible = state.arrived + state.awaited
                is_enough = state.arrived >= tf.minimum(tf.cast(self._needed, tf.int64), possible)
                return ~((state.arrived > 0) & is_enough | state.is_stopped)

        return _State(*tf.while_loop(goes_on, lambda *x: self._after_event(_State(*x)), state))

    def _after_event(self, state: _State) -> _State:
        """Takes an event: the state before and after."""
        with tf.device(self._device):
            event = self._next_event(state.round)
            # What a closure sends after it was told that it has missed a round is of none.
            is_dropped = event.is_a(Happening.IS_LATE) & (event.round >= 0)
            state = _State(
                state.round,
                state.dropped + tf.cast(is_dropped, tf.int64),
                event.is_a(Happening.STOPS),
                state.arrived + event.change_of(Standing.ARRIVED),
                state.awaited + event.change_of(Standing.AWAITED),
            )
            arrives = event.is_a(Happening.ARRIVES)
            held = self._arrived.sparse_read(event.member)
            row = tf.where(arrives, event.numbers, held)
            self._arrived.scatter_update(tf.IndexedSlices(row, event.member))
            with tf.control_dependencies(self._note(event, state.round, state.dropped)):
                round_ = tf.identity(state.round)
            self._answer(event, round_)
            return state

    def _closed(self, state: _State) -> _State:
        """Applies what has arrived and opens the next round."""
        with tf.device(self._device):
            standings = self._standings()
            has_arrived = tf.equal(standings, Standing.ARRIVED)
            arrived = tf.where(has_arrived[:, tf.newaxis], self._arrived.read_value(), 0.0)
            weights = arrived[:, 0] / tf.reduce_sum(arrived[:, 0])
            turns = tf.cast(self._turns.read_value(), tf.float64)
            # One tensor: each one that travels costs a message.
            decided = tf.concat([[tf.cast(state.round, tf.float64)], turns, weights], 0)
        writes = self._apply(decided)
        with tf.device(self._device):
            writes.append(self._progress.add(arrived[:, 1:]))
            with tf.control_dependencies(writes):
                round_ = state.round + 1
            standings = tf.gather(after_closing(self._has_backups), standings)
            standings = tf.cast(standings, tf.int64)
            with tf.control_dependencies([self._show(round_, state.dropped, standings)]):
                ready = tf.where(has_arrived)[:, 0]
            self._give_all(ready, round_)
            awaited = tf.math.count_nonzero(tf.equal(standings, Standing.AWAITED))
            return state._replace(round=round_, arrived=tf.zeros([], tf.int64), awaited=awaited)

    def _apply(self, decided: tf.Tensor) -> list[tf.Operation]:
        """Applies what a round takes on every ps; returns the operations that write."""
        store, writes = self._store, []
        for part, device in enumerate(store.devices):
            with tf.device(device):
                here = tf.identity(decided)
                round_, turns, weights = tf.split(here, [1, self._members, self._members])
                decision = Decision(
                    tf.cast(round_[0], tf.int64),
                    tf.cast(turns, tf.int64),
                    tf.cast(weights, tf.float32),
                )
                step = store.count_update(part, [here], pulled_at={})
                writes += self._contributions.apply(part, decision, step)
        return writes
