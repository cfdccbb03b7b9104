"""Bounded staleness: no member is more than so many steps ahead of the slowest."""

from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.barrier import Barrier
from tfps.barrier.loop import LoopState, MessageLoop, Transition
from tfps.barrier.member_state import Event, MemberState
from tfps.barrier.messages import CHANGE, Message
from tfps.leases.progress import LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore


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
        loop = _BoundedLoop(store.devices[0], progress, members, max_staleness)
        super().__init__(store, progress, loop)

    def _send(
        self, token: tf.Tensor, gradients: Gradients, trained: tf.Tensor
    ) -> tuple[list[tf.Tensor | tf.Operation], tf.Tensor]:
        return self._store.push(*gradients), trained


class _Counts(NamedTuple):
    """What the loop counts; scalars, int64."""

    slowest: tf.Tensor  # least clock of the members present; the latest where nobody is
    at_slowest: tf.Tensor  # how many of the members present have that clock
    latest: tf.Tensor  # greatest clock that any member has had


class _BoundedLoop(MessageLoop):
    """The barrier loop of clocks: members wait until the slowest has come further.

    A member is present unless it is away. `LoopState.round` is the number of steps of all members.
    """

    def __init__(self, device: str, progress: LeaseProgress, members: int, max_staleness: int):
        super().__init__(members, device)
        self._progress = progress
        self._max_staleness = max_staleness
        with tf.device(self._device):
            # By member: steps, as far as they count for who is ahead of whom.
            self._clocks = tf.Variable(tf.zeros([members], tf.int64), trainable=False)

    def _first_state(self) -> LoopState:
        return LoopState.at_first(counts=len(_Counts._fields))

    def _classify(self, state: LoopState, message: Message, before: tf.Tensor) -> tf.Tensor:
        slowest = _Counts(*state.counts).slowest
        clock = self._clock(slowest, message, before) + 1
        events = [tf.constant(each, tf.int64) for each in (Event.KEEPS_UP, Event.ARRIVES)]
        return tf.where(clock - slowest <= self._max_staleness, *events)

    def _count(
        self, state: LoopState, transition: Transition
    ) -> tuple[LoopState, list[tf.Operation]]:
        message, counts = transition.message, _Counts(*state.counts)
        ticks = transition.is_a(Event.ARRIVES) | transition.is_a(Event.KEEPS_UP)
        tick = tf.cast(ticks, tf.int64)
        before = self._clock(counts.slowest, message, transition.before)
        clock = before + tick
        self._clocks.scatter_update(tf.IndexedSlices(clock, message.member))
        was_slowest, is_slowest = (
            tf.cast(_is_present(each) & tf.equal(its, counts.slowest), tf.int64)
            for each, its in ((transition.before, before), (transition.after, clock))
        )
        at_slowest = counts.at_slowest + is_slowest - was_slowest
        after = state._replace(
            round=state.round + tick,
            is_due=tf.equal(at_slowest, 0),
            counts=(counts.slowest, at_slowest, tf.maximum(counts.latest, clock)),
        )
        return after, self._record(transition, ticks)

    def _let_go(self, state: LoopState) -> LoopState:
        """Finds the slowest clock, and lets members go that wait and are not too far ahead of it.

        Nobody has the slowest clock of before any more: this comes once in a step of all.
        """
        with tf.device(self._device):
            states, clocks = self._states(), self._clocks.read_value()
            latest = _Counts(*state.counts).latest
            slowest = tf.reduce_min(tf.where(_is_present(states), clocks, latest))
            at_slowest = tf.math.count_nonzero(_is_present(states) & tf.equal(clocks, slowest))
            keep_up = clocks - slowest <= self._max_staleness
            goes = tf.equal(states, MemberState.ARRIVED) & keep_up
            states = tf.where(goes, self._after(Event.KEEPS_UP, states), states)
            with tf.control_dependencies([self._write_states(state, states)]):
                ready = tf.where(goes)[:, 0]
            self._give_next(ready, state.round)
            counts = slowest, at_slowest, latest
            return state._replace(is_due=tf.constant(False), counts=counts)

    def _clock(self, slowest: tf.Tensor, message: Message, state: tf.Tensor) -> tf.Tensor:
        """The clock of a message's member: its own if the member is present, else the slowest."""
        own = self._clocks.sparse_read(message.member)
        return tf.where(_is_present(state), own, slowest)

    def _record(self, transition: Transition, ticks: tf.Tensor) -> list[tf.Operation]:
        """Records what was pushed: for the lease, or as trained by one that holds it no more."""
        message, nothing = transition.message, tf.zeros([CHANGE], tf.float64)
        change, progress = message.trained[-CHANGE:], self._progress
        own = tf.where(ticks, change, nothing)
        orphaned = tf.where(transition.is_a(Event.IS_DISPLACED), change, nothing)
        return [
            progress.add_to(message.member, own),
            progress.add_orphaned_batches(orphaned[1]),
        ]


def _is_present(state: tf.Tensor) -> tf.Tensor:
    return tf.not_equal(state, MemberState.AWAY)
