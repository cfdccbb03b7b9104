"""The barrier loop, on the first ps: takes messages, moves members from state to state, answers."""

import abc
import enum
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.barrier.messages import Answer, Kind, Message, MessageQueue, TokenQueues, answer_token

_STATES = 2  # where the members' begin in the status


class MemberState(enum.IntEnum):
    """How a member stands to the round."""

    AWAY = 0  # it is not waited for
    AWAITED = 1
    ARRIVED = 2  # it has contributed
    LATE = 3  # what it computes is for a round that has closed without it


class BarrierStatus(NamedTuple):
    """The open round from 0 (without rounds: all steps), and late contributions dropped."""

    round: int
    dropped: int
    states: list[MemberState]


class Event(enum.IntEnum):
    """What a message means for its member in its place and round; the first five are `Kind`s."""

    EXPECTED = Kind.EXPECT
    LEAVES = Kind.LEAVE
    BEGINS = Kind.BEGIN
    ARRIVES = Kind.CONTRIBUTE  # the closure that has the member's place, and it has to wait
    STOPS = Kind.STOP
    KEEPS_UP = 5  # it arrives, and is not too far ahead of the slowest: only without rounds
    IS_LATE = 6  # it arrives, but for another round than the one that is open
    IS_DISPLACED = 7  # a closure has begun or contributed, but another one has the member's place
    ROUND_CLOSES = 8  # no message: it comes to all members at once


_AWAY, _AWAITED, _ARRIVED, _LATE = MemberState


# What a member is after an event, by what it was, and the answer to its closure. A closure
# that has arrived also ends when another begins in its place.
_TRANSITIONS = {
    #                      away      awaited   arrived   late      its closure is told
    Event.EXPECTED: ((_AWAITED, _AWAITED, _ARRIVED, _LATE), Answer.NOTHING),
    Event.LEAVES: ((_AWAY, _AWAY, _ARRIVED, _AWAY), Answer.NOTHING),
    Event.BEGINS: ((_AWAITED, _AWAITED, _AWAITED, _AWAITED), Answer.PULL),
    Event.ARRIVES: ((_ARRIVED, _ARRIVED, _ARRIVED, _ARRIVED), Answer.NOTHING),
    Event.STOPS: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.NOTHING),
    Event.KEEPS_UP: ((_AWAITED, _AWAITED, _AWAITED, _AWAITED), Answer.NEXT),
    Event.IS_LATE: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.BEGIN_AGAIN),
    Event.IS_DISPLACED: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.END),
    Event.ROUND_CLOSES: ((_AWAY, _LATE, _AWAITED, _LATE), Answer.NEXT),
}


# Where rounds close without waiting for everybody, a member that is late repeats its batch at once,
# and is waited for again.
_WITH_BACKUPS = {
    Event.IS_LATE: ((_AWAITED, _AWAITED, _ARRIVED, _AWAITED), Answer.PULL),
}


class Transitions(NamedTuple):
    """The table as int64 arrays: state after, `[events, states]`, and `Answer`, `[events]`."""

    states: np.ndarray
    answers: np.ndarray

    @classmethod
    def of(cls, has_backups: bool) -> "Transitions":
        rows = {**_TRANSITIONS, **(_WITH_BACKUPS if has_backups else {})}
        states, answers = zip(*(rows[event] for event in Event), strict=True)
        return cls(np.array(states, np.int64), np.array(answers, np.int64))


class LoopState(NamedTuple):
    """Scalars carried from message to message; `is_due` when members may be released."""

    round: tf.Tensor
    dropped: tf.Tensor
    is_stopped: tf.Tensor
    is_due: tf.Tensor
    counts: tuple[tf.Tensor, ...]

    @classmethod
    def at_first(cls, counts: int) -> "LoopState":
        zero, no = tf.zeros([], tf.int64), tf.constant(False)
        return cls(zero, zero, no, no, (zero,) * counts)


class Transition(NamedTuple):
    """A message's effect: `Event`, the attempt that held the place, states, `Answer`; int64."""

    message: Message
    event: tf.Tensor
    held: tf.Tensor
    before: tf.Tensor
    after: tf.Tensor
    answer: tf.Tensor

    def is_a(self, event: Event) -> tf.Tensor:
        return tf.equal(self.event, event)

    def change_of(self, state: MemberState) -> tf.Tensor:
        """By how much the number of members in a state changes, scalar int64."""
        after, before = (
            tf.cast(tf.equal(each, state), tf.int64) for each in (self.after, self.before)
        )
        return after - before


class MessageLoop(abc.ABC):
    """Runs on the first ps during the training, for members that wait.

    It looks up each message in the table of `member_state`: the member's next state and the answer
    to its closure. A kind of barrier defines what members wait for. The cost of a message does not
    grow with the number of members; releasing them all does.
    """

    def __init__(self, members: int, device: str, has_backups: bool = False):
        self.messages = MessageQueue(device)
        self.tokens = TokenQueues(members, device)
        self.members = members
        self._device = device
        self._transitions = Transitions.of(has_backups)
        with tf.device(device):
            self._attempts = tf.Variable(tf.zeros([members], tf.int64), trainable=False)
            away = tf.fill([members], np.int64(MemberState.AWAY))
            status = tf.concat([tf.zeros([_STATES], tf.int64), away], 0)
            self._status = tf.Variable(status, trainable=False)

    def run(self) -> tf.Tensor:
        """Runs until a message stops it; returns the number of rounds, or of steps, for people."""
        with tf.device(self._device):
            last = tf.while_loop(
                lambda *values: ~LoopState(*values).is_stopped,
                lambda *values: self._take_messages(self._let_go(LoopState(*values))),
                self._first_state(),
            )
            return last[0]

    def status(self) -> BarrierStatus:
        """On the chief: where the members are."""
        round_, dropped, *states = self._status.numpy()
        return BarrierStatus(int(round_), int(dropped), [MemberState(each) for each in states])

    @abc.abstractmethod
    def _first_state(self) -> LoopState:
        """The loop's state before the first call of `_let_go`."""

    @abc.abstractmethod
    def _classify(self, state: LoopState, message: Message, before: tf.Tensor) -> tf.Tensor:
        """The event of a contribution by the closure that holds its member's place, int64."""

    @abc.abstractmethod
    def _count(
        self, state: LoopState, transition: Transition
    ) -> tuple[LoopState, list[tf.Operation]]:
        """Counts a message; returns the next state and what must finish before the answer."""

    @abc.abstractmethod
    def _let_go(self, state: LoopState) -> LoopState:
        """Lets members go that need not wait any longer: the loop's state before and after."""

    def _take_messages(self, state: LoopState) -> LoopState:
        """Takes messages until it is due to let members go."""

        def goes_on(*values: Any) -> tf.Tensor:
            with tf.device(self._device):
                state = LoopState(*values)
                return ~(state.is_due | state.is_stopped)

        return LoopState(
            *tf.while_loop(goes_on, lambda *values: self._take_message(LoopState(*values)), state)
        )

    def _take_message(self, state: LoopState) -> LoopState:
        """Takes a message: the loop's state before and after."""
        with tf.device(self._device):
            transition = self._transition(state, self.messages.take())
            state, written = self._count(state, transition)
            state = state._replace(is_stopped=transition.is_a(Event.STOPS))
            written += self._write(state, transition)
            with tf.control_dependencies(written):
                round_ = tf.identity(state.round)
            self._answer(transition, round_)
            return state

    def _transition(self, state: LoopState, message: Message) -> Transition:
        """Looks up what a message does; does not yet change anything."""
        held = self._attempts.sparse_read(message.member)
        before = self._status.sparse_read(_STATES + message.member)
        begins = tf.equal(message.kind, Kind.BEGIN)
        contributes = tf.equal(message.kind, Kind.CONTRIBUTE)
        is_old, is_other = message.attempt < held, tf.not_equal(message.attempt, held)
        is_displaced = begins & is_old | contributes & is_other
        event = tf.where(contributes, self._classify(state, message, before), message.kind)
        event = tf.where(is_displaced, _int64(Event.IS_DISPLACED), event)
        after = tf.gather_nd(self._transitions.states, tf.stack([event, before]))
        answer = tf.gather(self._transitions.answers, event)
        return Transition(message, event, held, before, after, answer)

    def _write(self, state: LoopState, transition: Transition) -> list[tf.Operation]:
        """Writes what becomes of a member, for the loop and for the chief to see."""
        message, held = transition.message, transition.held
        attempt = tf.where(transition.is_a(Event.BEGINS), message.attempt, held)
        where = tf.stack([_int64(0), _int64(1), _STATES + message.member])
        numbers = tf.stack([state.round, state.dropped, transition.after])
        return [
            _put(self._attempts, message.member, attempt),
            _put(self._status, where, numbers),
        ]

    def _answer(self, transition: Transition, round_: tf.Tensor) -> None:
        """Gives the closure of a message its token, with scalar int64 `round_`, if it gets one."""
        message, answer = transition.message, transition.answer
        # A closure that has contributed, and waits, learns that another one begins in its place. It
        # comes first: both may wait at the same queue.
        ends = transition.is_a(Event.BEGINS) & tf.equal(transition.before, MemberState.ARRIVED)
        last = answer_token(Answer.END, message.member, transition.held)
        ended = tf.cond(ends, lambda: self.tokens.put(last), tf.no_op)
        round_, taken = tf.where(answer < 0, answer, round_), tf.maximum(answer, 0)
        token = tf.stack([message.member, message.attempt, round_, taken])
        with tf.control_dependencies([ended]):
            has_answer = tf.not_equal(answer, Answer.NOTHING)
            tf.cond(has_answer, lambda: self.tokens.put(token), tf.no_op)

    def _states(self) -> tf.Tensor:
        """The states of all members, `[members]` int64."""
        return self._status.read_value()[_STATES:]

    def _after(self, event: Event, states: tf.Tensor) -> tf.Tensor:
        """The states of members after an event that comes to all of them."""
        return tf.gather(self._transitions.states[event], states)

    def _write_states(self, state: LoopState, states: tf.Tensor) -> tf.Operation:
        numbers = tf.concat([[state.round, state.dropped], states], 0)
        return self._status.assign(numbers, read_value=False)

    def _give_next(self, members: tf.Tensor, round_: tf.Tensor) -> None:
        """Tells members, `[n]` int64, whose contributions are taken, to pull for the next batch."""
        attempts = tf.gather(self._attempts, members)

        def give(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(self._device):
                token = tf.stack([members[index], attempts[index], round_, 1])
                with tf.control_dependencies([self.tokens.put(token)]):
                    return (index + 1,)

        tf.while_loop(lambda index: index < tf.size(members), give, (0,))


def _put(variable: tf.Variable, where: tf.Tensor, values: tf.Tensor) -> tf.Operation:
    """Writes elements of a variable, and no copy of it."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=where, updates=values)


def _int64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)
