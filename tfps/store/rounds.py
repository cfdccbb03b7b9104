"""Rounds: the gradients of several workers are averaged and applied once, behind a barrier."""

from typing import NamedTuple

import tensorflow as tf

from tfps.store.barrier import CHANGE, Barrier, Kind
from tfps.store.barrier_status import Standing
from tfps.store.contributions import Contributions, Decision
from tfps.store.gradients import Gradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.token import FIELDS


class _State(NamedTuple):
    """What the keeper knows; `[members]` each but for the first three, scalars."""

    round: tf.Tensor  # int64
    dropped: tf.Tensor  # int64
    is_stopped: tf.Tensor  # bool
    standings: tf.Tensor  # int64
    turns: tf.Tensor  # int64
    arrived: tf.Tensor  # [members, 1 + CHANGE] float64: records, change of the lease's progress


class Rounds(Barrier):
    """The barrier of synchronous training.

    When every member who is expected has contributed, or enough have, every ps applies the mean of
    what they sent, weighted by records, once, and adds up the progress of their leases. Then each
    gets a token.

    A contribution is announced to the keeper once it is on every ps: a worker that dies while it
    sends leaves nothing half-applied. Progress is recorded with the update itself: no batch is
    trained twice, and none is left out, whatever is lost when.
    """

    has_rounds = True

    def __init__(self, store: ParameterStore, members: int, backups: int):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            members: Slots of leases.
            backups: So many of the members are not waited for.
        """
        super().__init__(store, members)
        self._needed = max(1, members - backups)
        self._drops = backups > 0
        self._contributions = Contributions(store, 4 * members + 16, self._drops)

    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        return self._contributions.send(token, gradients)

    def _keep(self) -> tf.Tensor:
        """The keeper; returns the number of rounds that have closed."""
        members = [self._members]
        with tf.device(self._device):
            first = _State(
                round=tf.zeros([], tf.int64),
                dropped=tf.zeros([], tf.int64),
                is_stopped=tf.constant(False),
                standings=tf.fill(members, _int64(Standing.AWAY)),
                turns=tf.zeros(members, tf.int64),
                arrived=tf.zeros([*members, 1 + CHANGE], tf.float64),
            )
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
                arrived = _count(state.standings, Standing.ARRIVED)
                possible = arrived + _count(state.standings, Standing.AWAITED)
                is_full = (arrived > 0) & (arrived >= tf.minimum(self._needed, possible))
                return ~(is_full | state.is_stopped)

        return _State(*tf.while_loop(goes_on, lambda *x: self._after_event(_State(*x)), state))

    def _after_event(self, state: _State) -> _State:
        """Takes an event: the state before and after."""
        with tf.device(self._device):
            event = self._events.dequeue()
            kind, member, turn, of_round = tf.unstack(tf.cast(event[:FIELDS], tf.int64))
            begins = tf.equal(kind, Kind.BEGIN)
            contributes = tf.equal(kind, Kind.CONTRIBUTE)
            is_its = tf.equal(turn, state.turns[member])
            is_late = contributes & is_its & self._drops & tf.not_equal(of_round, state.round)
            arrives = contributes & is_its & ~is_late
            before = state.standings[member]
            expected = tf.equal(kind, Kind.EXPECT) & tf.equal(before, Standing.AWAY)
            leaves = tf.equal(kind, Kind.LEAVE) & tf.not_equal(before, Standing.ARRIVED)
            after = tf.where(leaves, _int64(Standing.AWAY), before)
            after = tf.where(expected | begins | is_late, _int64(Standing.AWAITED), after)
            after = tf.where(arrives, _int64(Standing.ARRIVED), after)
            where = [[member]]
            row = tf.where(arrives, event[FIELDS:], state.arrived[member])
            state = _State(
                state.round,
                state.dropped + tf.cast(is_late, tf.int64),
                tf.equal(kind, Kind.STOP),
                tf.tensor_scatter_nd_update(state.standings, where, [after]),
                tf.tensor_scatter_nd_max(state.turns, where, [turn]),
                tf.tensor_scatter_nd_update(state.arrived, where, [row]),
            )
            shown = self._show(state.round, state.dropped, state.standings)
            # Who is told to train for a round without having to wait for it; who to stop.
            answers = begins | (contributes & ~arrives)
            round_ = tf.where(is_its | begins, state.round, _int64(-1))
            with tf.control_dependencies([shown]):
                token = tf.stack([member, turn, round_, 0])
            tf.cond(answers, lambda: self._give(token), tf.no_op)
            return state

    def _closed(self, state: _State) -> _State:
        """Applies what has arrived and opens the next round."""
        with tf.device(self._device):
            has_arrived = tf.equal(state.standings, Standing.ARRIVED)
            arrived = tf.where(has_arrived[:, tf.newaxis], state.arrived, 0.0)
            weights = arrived[:, 0] / tf.reduce_sum(arrived[:, 0])
            turns = tf.cast(state.turns, tf.float64)
            # One tensor: each one that travels costs a message.
            decided = tf.concat([[tf.cast(state.round, tf.float64)], turns, weights], 0)
        writes = self._apply(decided)
        with tf.device(self._device):
            writes.append(self._store.progress.add(arrived[:, 1:]))
            with tf.control_dependencies(writes):
                round_ = state.round + 1
            missed = _int64(Standing.LATE if self._drops else Standing.AWAITED)
            was_awaited = tf.equal(state.standings, Standing.AWAITED)
            standings = tf.where(was_awaited, missed, state.standings)
            standings = tf.where(has_arrived, _int64(Standing.AWAITED), standings)
            state = state._replace(round=round_, standings=standings)
            with tf.control_dependencies([self._show(state.round, state.dropped, state.standings)]):
                ready = tf.where(has_arrived)[:, 0]
            self._give_all(ready, state.turns, state.round)
            return state

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
                step = store.count_update(part, [here])
                if part == store.staleness.part:
                    store.staleness.count(step, step)
                writes += self._contributions.apply(part, decision, step)
        return writes


def _count(standings: tf.Tensor, standing: Standing) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.equal(standings, standing), tf.int32))


def _int64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)
