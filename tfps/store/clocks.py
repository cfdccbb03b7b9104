"""Clocks: nobody is more than so many steps ahead of the slowest."""

from typing import NamedTuple

import tensorflow as tf

from tfps.store.barrier import CHANGE, Barrier, Kind
from tfps.store.barrier_status import Standing
from tfps.store.gradients import Gradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.token import FIELDS


class _State(NamedTuple):
    """What the keeper knows."""

    steps: tf.Tensor  # of all members together, scalar int64
    is_stopped: tf.Tensor  # scalar bool
    standings: tf.Tensor  # [members] int64
    turns: tf.Tensor  # [members] int64
    clocks: tf.Tensor  # [members] int64: steps, as far as they count for who is ahead of whom


class Clocks(Barrier):
    """The barrier of bounded staleness ("stale synchronous parallel", Ho et al., NIPS 2013).

    Gradients are applied as they come. A member has a clock, the number of its steps, and gets its
    next token once the slowest clock is at most `max_staleness` behind its own: with that token it
    pulls parameters that have every update but those of the last so many steps of each. A member
    that joins later begins with the slowest clock.
    """

    has_rounds = False

    def __init__(self, store: ParameterStore, members: int, max_staleness: int):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            members: Slots of leases.
            max_staleness: How many steps one may be ahead of the slowest.
        """
        super().__init__(store, members)
        self._max_staleness = max_staleness

    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        return self._store.push(*gradients)

    def _keep(self) -> tf.Tensor:
        """The keeper; returns the number of steps."""
        members = [self._members]
        with tf.device(self._device):
            zeros = tf.zeros(members, tf.int64)
            first = _State(tf.zeros([], tf.int64), tf.constant(False), zeros, zeros, zeros)
            last = tf.while_loop(
                lambda *state: ~_State(*state).is_stopped,
                lambda *state: self._after_event(_State(*state)),
                first,
            )
            return last[0]

    def _after_event(self, state: _State) -> _State:
        """Takes an event: the state before and after."""
        with tf.device(self._device):
            event = self._events.dequeue()
            kind, member, turn, _ = tf.unstack(tf.cast(event[:FIELDS], tf.int64))
            begins, contributes = tf.equal(kind, Kind.BEGIN), tf.equal(kind, Kind.CONTRIBUTE)
            ticks = contributes & tf.equal(turn, state.turns[member])
            before = state.standings[member]
            joins = tf.equal(before, Standing.AWAY) & (begins | ticks | tf.equal(kind, Kind.EXPECT))
            leaves = tf.equal(kind, Kind.LEAVE) & tf.not_equal(before, Standing.ARRIVED)
            after = tf.where(leaves, tf.constant(Standing.AWAY, tf.int64), before)
            after = tf.where(joins | begins, tf.constant(Standing.AWAITED, tf.int64), after)
            after = tf.where(ticks, tf.constant(Standing.ARRIVED, tf.int64), after)
            clock = tf.where(joins, self._slowest(state), state.clocks[member])
            one, where = tf.cast(ticks, tf.int64), [[member]]
            state = _State(
                state.steps + one,
                tf.equal(kind, Kind.STOP),
                tf.tensor_scatter_nd_update(state.standings, where, [after]),
                tf.tensor_scatter_nd_max(state.turns, where, [turn]),
                tf.tensor_scatter_nd_update(state.clocks, where, [clock + one]),
            )
            change = tf.where(ticks, event[-CHANGE:], tf.zeros([CHANGE], tf.float64))
            recorded = self._store.progress.add_to(member, change)
            # Who begins is told to go on; who contributes after another took its place, to stop.
            round_ = tf.where(begins, state.steps, tf.constant(-1, tf.int64))
            token = tf.stack([member, turn, round_, 0])
            tf.cond(begins | (contributes & ~ticks), lambda: self._give(token), tf.no_op)
            with tf.control_dependencies([recorded]):
                return self._granted(state)

    def _granted(self, state: _State) -> _State:
        """Lets go on who is not too far ahead."""
        has_arrived = tf.equal(state.standings, Standing.ARRIVED)
        may_go = state.clocks - self._slowest(state) <= self._max_staleness
        goes = has_arrived & may_go
        awaited = tf.constant(Standing.AWAITED, tf.int64)
        state = state._replace(standings=tf.where(goes, awaited, state.standings))
        dropped = tf.zeros([], tf.int64)
        with tf.control_dependencies([self._show(state.steps, dropped, state.standings)]):
            ready = tf.where(goes)[:, 0]
        self._give_all(ready, state.turns, state.steps)
        return state

    def _slowest(self, state: _State) -> tf.Tensor:
        """The slowest clock of those present; where nobody is, the latest that anybody had."""
        is_present = tf.not_equal(state.standings, Standing.AWAY)
        latest = tf.reduce_max(state.clocks)
        return tf.reduce_min(tf.where(is_present, state.clocks, latest))
