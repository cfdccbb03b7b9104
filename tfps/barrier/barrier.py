"""Where workers wait for each other: what closures and the chief say to the barrier loop."""

import abc
import logging
import threading
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.loop import BarrierStatus, Event, LoopState, MemberState, MessageLoop, Transition
from tfps.barrier.messages import (
    ATTEMPT,
    CHANGE,
    DISPLACED,
    MEMBER,
    ROUND,
    Answer,
    Kind,
    Message,
    answer_token,
    message,
)
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.job_dir.report import RoundCounts
from tfps.leases.progress import LaneProgress, LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore

_log = logging.getLogger(__name__)


class Barrier(abc.ABC):
    """A loop on the first ps that lets members continue, and how workers and chief talk to it.

    A member is a lane of leases, whichever worker trains them. Chief and closures put messages
    into the loop's queue: for whom a closure will work, who has begun, who has contributed. The
    loop answers with tokens. A worker's next pull waits for its token on the ps, so that the
    barrier costs no message of its own. Nothing of it passes through the chief.
    """

    has_rounds: bool

    def __init__(self, store: ParameterStore, progress: LeaseProgress, loop: MessageLoop):
        self._store = store
        self._progress = progress
        self._loop = loop
        self._device = store.devices[0]
        self.run = tf.function(loop.run, input_signature=[], autograph=False)

    def begin(self, place: tf.Tensor, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """In a closure: takes a member's place unless the member has another lease by now.

        `place` is that of `LeaseProgress.place`. Returns the token to pull with first (it tells a
        refused closure to end), and the steps already trained of the lease, scalar int64.
        """
        progress = self._progress

        def announce(member: tf.Tensor, attempt: tf.Tensor, has_begun: tf.Tensor) -> tf.Operation:
            begun = message(Kind.BEGIN, member, attempt)
            return self._loop.messages.put_all(begun[tf.newaxis][: tf.cast(has_begun, tf.int32)])

        with tf.device(self._device):
            attempt, _ = progress.begin(place, worker, announce)
            member = progress.lane_of(place)

            def refuse() -> tf.Tensor:
                with tf.device(self._device):
                    return answer_token(Answer.END, member, attempt)

            take_first = self._loop.tokens.take_first
            token = tf.cond(attempt >= 0, lambda: take_first(member, attempt), refuse)
            return token, self._steps(member, token)

    def begin_again(self, token: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """In a closure that has missed a round: has others wait for its member again."""
        member = token[MEMBER]
        with tf.device(self._device):
            attempt = self._attempt_now(member, token[ATTEMPT])
            begun = self._loop.messages.put(message(Kind.BEGIN, member, attempt))
            with tf.control_dependencies([begun]):
                token = self._loop.tokens.take_first(member, attempt)
            return token, self._steps(member, token)

    def contribute(
        self, token: tf.Tensor, gradients: Gradients, records: tf.Tensor, change: tf.Tensor
    ) -> tf.Tensor:
        """In a closure: sends gradients and `change`, `[CHANGE]` float64; waits for a token."""
        # One tensor: each one that travels costs a message.
        trained = tf.concat([[tf.cast(records, tf.float64)], change], 0)
        sent, trained = self._send(token, gradients, trained)
        with tf.device(self._device), tf.control_dependencies(sent):
            member = token[MEMBER]
            attempt = self._attempt_now(member, token[ATTEMPT])
            said = message(Kind.CONTRIBUTE, member, attempt, token[ROUND], trained)
            announced = self._loop.messages.put(said)
        with tf.device(self._device), tf.control_dependencies([announced]):
            return self._loop.tokens.take(member, attempt)

    def expect(self, members: Sequence[int]) -> None:
        """On the chief: has others wait for members, for whom closures are about to begin."""
        self._loop.messages.notify(Kind.EXPECT, members)

    def leave(self, members: Sequence[int]) -> None:
        """On the chief: has others wait no more for members, until a closure begins for them."""
        self._loop.messages.notify(Kind.LEAVE, members)

    def stop(self) -> None:
        """On the chief: ends the barrier loop."""
        self._loop.messages.notify(Kind.STOP, [0])

    def status(self) -> BarrierStatus:
        """On the chief: where the members are."""
        return self._loop.status()

    @abc.abstractmethod
    def _send(
        self, token: tf.Tensor, gradients: Gradients, trained: tf.Tensor
    ) -> tuple[list[tf.Tensor | tf.Operation], tf.Tensor]:
        """In a closure: sends gradients; what must finish before the loop knows, and the batch."""

    def _steps(self, member: tf.Tensor, token: tf.Tensor) -> tf.Tensor:
        """In a closure: steps trained of a lease when its first token has arrived, scalar int64."""
        # What its lease's last closure contributed is recorded by now, or never will be.
        with tf.device(self._device), tf.control_dependencies([token]):
            return tf.cast(self._progress.lane(member)[1], tf.int64)

    def _attempt_now(self, member: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure, on the first ps: the attempt for which it speaks and waits."""
        # At the queue of an attempt that is long over another closure may wait by now.
        holds = self._progress.holds(member, attempt)
        return tf.where(holds, attempt, tf.constant(DISPLACED, tf.int64))


class BarrierMembers:
    """Starts and ends a barrier loop, and reports its members to it.

    A member, which is a lane of leases, is awaited from its first lease to its last. The member of
    a lost worker is awaited until nobody has made progress for `round_seconds`; it is back when its
    lease resumes on another worker.
    """

    def __init__(
        self, barrier: Barrier, monitor: TaskMonitor, ps_calls: PsCalls, round_seconds: float
    ):
        self._barrier = barrier
        self._monitor = monitor
        self._ps_calls = ps_calls
        self._round_seconds = round_seconds
        self._working: frozenset[int] = frozenset()
        self._status = BarrierStatus(0, 0, [])
        self._since = time.monotonic()
        self._has_begun = False
        self._error: Exception | None = None

    def report(self) -> RoundCounts | None:
        """Rounds that have closed, and contributions that came too late; None without rounds."""
        if not self._barrier.has_rounds:
            return None
        status = self._barrier.status()
        return RoundCounts(closed=status.round, dropped=status.dropped)

    def work_for(self, lanes: Collection[int]) -> None:
        """Has others wait for these lanes alone; called before their closures are scheduled."""
        now = frozenset(lanes)
        before, self._working = self._working, now
        if now and not self._has_begun:
            self._has_begun = True
            self._begin()

        def notify() -> None:
            self._barrier.leave(sorted(before - now))
            self._barrier.expect(sorted(now - before))

        if now != before:
            self._ps_calls("telling whom to wait for", notify)

    def poll(self, rows: Sequence[LaneProgress]) -> list[int]:
        """Has others wait no more for members that nobody works for, or whose worker is lost."""
        if self._error:
            raise self._error
        status = self._ps_calls("reading who waits for whom", self._barrier.status)
        if status.round != self._status.round:
            self._since = time.monotonic()
        self._status = status
        awaited = [k for k in self._working if status.states[k] == MemberState.AWAITED]
        left = self._given_up(awaited, rows)
        if left:
            self._ps_calls("telling whom to wait for", lambda: self._barrier.leave(left))
        for lane in left:
            if rows[lane].worker >= 0:
                _log.warning(
                    "others continue without worker %d, which is lost, until its lease continues",
                    rows[lane].worker,
                )
        return [lane for lane in awaited if lane not in left]

    def stop(self) -> None:
        """Ends the barrier loop, if its ps can be reached; does not wait for that."""
        if self._has_begun:
            threading.Thread(target=self._stop, name="end-of-barrier", daemon=True).start()

    def _given_up(self, awaited: Sequence[int], rows: Sequence[LaneProgress]) -> list[int]:
        """Those of the lanes awaited that make others wait for nothing."""
        # While a worker is down, a lease that nobody has begun waits until another lease ends.
        down = self._monitor.down("worker")
        left = [k for k in awaited if down and rows[k].worker < 0]
        if time.monotonic() - self._since >= self._round_seconds:
            # One probe without an answer says nothing of a worker whose rounds take long.
            lost = {outage.task.index for outage in self._monitor.lost("worker")}
            left += [k for k in awaited if rows[k].worker in lost]
        return left

    def _begin(self) -> None:
        # Traced now: while workers wait for each other, no function can be registered with them.
        loop = self._barrier.run.get_concrete_function()

        def run() -> None:
            try:
                loop()
            except Exception as error:  # for the chief's thread to raise
                self._error = error

        threading.Thread(target=run, name="barrier", daemon=True).start()

    def _stop(self) -> None:
        try:
            self._barrier.stop()
        except Exception as error:  # with its ps, the loop is gone
            _log.debug("the barrier loop cannot be reached: %s", error)


class BoundedStalenessBarrier(Barrier):
    """The barrier of bounded staleness ("stale synchronous parallel", Ho et al., NIPS 2013).

    Gradients are applied as they come. A member's clock is the number of its steps. It gets its
    next token once the slowest clock is at most `max_staleness` behind its own; then it pulls
    parameters that lack at most that many of each member's last updates. A later member starts with
    the slowest clock.
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
    """Clocks: present members wait for the slowest; `LoopState.round` counts all steps."""

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
        """Releases members near enough to the slowest clock; runs once per step of all members."""
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
