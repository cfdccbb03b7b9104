"""Clocks: nobody is more than so many steps ahead of the slowest."""

from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.barrier import CHANGE, Barrier, Event
from tfps.barrier.member_state import Happening, Standing
from tfps.leases.progress import LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore


class _State(NamedTuple):
    """What the keeper carries from event to event, beside the variables; scalars."""

    steps: tf.Tensor  # int64: of all members together
    is_stopped: tf.Tensor  # bool
    slowest: tf.Tensor  # int64: clock of those present; where nobody is, the latest of all
    at_slowest: tf.Tensor  # int64: how many of those present have that clock
    latest: tf.Tensor  # int64: clock that anybody had


class BoundedStalenessBarrier(Barrier):
    """The barrier of bounded staleness ("stale synchronous parallel", Ho et al., NIPS 2013).

    Gradients are applied as they come. A member has a clock, the number of its steps, and gets its
    next token once the slowest clock is at most `max_staleness` behind its own: with that token it
    pulls parameters that have every update but those of the last so many steps of each. A member
    that joins later begins with the slowest clock.
    """

    has_rounds = False

    def __init__(
        self, store: ParameterStore, progress: LeaseProgress, members: int, max_staleness: int
    ):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            progress: How far the members' leases have come.
            members: Slots of leases.
            max_staleness: How many steps one may be ahead of the slowest.
        """
        super().__init__(store, progress, members)
        self._max_staleness = max_staleness
        with tf.device(self._device):
            # By member: steps, as far as they count for who is ahead of whom.
            self._clocks = tf.Variable(tf.zeros([members], tf.int64), trainable=False)

    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        return self._store.push(*gradients)

    def _keep(self) -> tf.Tensor:
        """The keeper; returns the number of steps."""
        with tf.device(self._device):
            zero = tf.zeros([], tf.int64)
            last = tf.while_loop(
                lambda *state: ~_State(*state).is_stopped,
                lambda *state: self._after_event(_State(*state)),
                _State(zero, tf.constant(False), zero, zero, zero),
            )
            return last[0]

    def _after_event(self, state: _State) -> _State:
        """Takes an event: the state before and after."""
        with tf.device(self._device):
            event = self._next_event(state.steps)
            ticks = event.is_a(Happening.ARRIVES)
            state, clock = self._with_clock(state, event, ticks)
            written = self._recorded(event)
            written += self._note(event, state.steps, tf.zeros([], tf.int64))
            with tf.control_dependencies(written):
                steps = tf.identity(state.steps)
            self._answer(event, steps)
            with tf.control_dependencies(written):
                return self._granted(state, event, ticks, clock)

    def _with_clock(
        self, state: _State, event: Event, ticks: tf.Tensor
    ) -> tuple[_State, tf.Tensor]:
        """Sets a member's clock: the state after, and the clock."""
        was_present = tf.not_equal(event.before, Standing.AWAY)
        is_present = tf.not_equal(event.after, Standing.AWAY)
        before, tick = self._clocks.sparse_read(event.member), tf.cast(ticks, tf.int64)
        clock = tf.where(is_present & ~was_present, state.slowest, before) + tick
        self._clocks.scatter_update(tf.IndexedSlices(clock, event.member))
        was_slowest = was_present & tf.equal(before, state.slowest)
        is_slowest = is_present & tf.equal(clock, state.slowest)
        change = tf.cast(is_slowest, tf.int64) - tf.cast(was_slowest, tf.int64)
        after = _State(
            state.steps + tick,
            event.is_a(Happening.STOPS),
            state.slowest,
            state.at_slowest + change,
            tf.maximum(state.latest, clock),
        )
        return after, clock

    def _recorded(self, event: Event) -> list[tf.Operation]:
        """Records what was pushed: for the lease, or as trained by one that holds it no more."""
        change, nothing = event.numbers[-CHANGE:], tf.zeros([CHANGE], tf.float64)
        progress = self._progress
        own = tf.where(event.is_a(Happening.ARRIVES), change, nothing)
        strayed = tf.where(event.is_a(Happening.STRAYS), change, nothing)
        return [progress.add_to(event.member, own), progress.add_orphaned(strayed[1])]

    def _granted(self, state: _State, event: Event, ticks: tf.Tensor, clock: tf.Tensor) -> _State:
        """Lets go on who is not too far ahead: the one of the event, or all for whom it waited."""

        def this_one() -> tuple[tf.Tensor, ...]:
            goes = ticks & (clock - state.slowest <= self._max_staleness)
            return state.slowest, state.at_slowest, tf.boolean_mask([event.member], [goes])

        slowest, at_slowest, ready = tf.cond(
            state.at_slowest > 0, this_one, lambda: self._next_slowest(state)
        )
        with tf.control_dependencies([self._note_standings(ready, Standing.AWAITED)]):
            ready = tf.identity(ready)
        self._give_all(ready, state.steps)
        return state._replace(slowest=slowest, at_slowest=at_slowest)

    def _next_slowest(self, state: _State) -> tuple[tf.Tensor, ...]:
        """Looks at all members: slowest clock, how many have it, and who may go on with it.

        Nobody has the one before any more, so that this comes once in a step of all.
        """
        with tf.device(self._device):
            standings, clocks = self._standings(), self._clocks.read_value()
            is_present = tf.not_equal(standings, Standing.AWAY)
            slowest = tf.reduce_min(tf.where(is_present, clocks, state.latest))
            at_slowest = tf.math.count_nonzero(is_present & tf.equal(clocks, slowest))
            may_go = clocks - slowest <= self._max_staleness
            goes = tf.equal(standings, Standing.ARRIVED) & may_go
            return slowest, at_slowest, tf.where(goes)[:, 0]
