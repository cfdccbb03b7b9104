"""Where workers wait for each other, on the first ps."""

import abc
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.barrier.member_state import (
    DISPLACED,
    FIELDS,
    MEMBER,
    MISSED,
    ROUND,
    STRAY,
    TURN,
    BarrierStatus,
    Happening,
    Standing,
    after_happening,
)
from tfps.leases.progress import LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore

CHANGE = 4  # numbers of a lease's progress
_TURNS = 4  # queues of tokens for each member, used in turn
_EVENTS = 1 << 16  # that may wait
_WIDTH = 1 + FIELDS + CHANGE  # of an event: kind, member, turn, round, records, change
_STANDINGS = 2  # where they begin in the status


class Kind(enum.IntEnum):
    """What an event says."""

    EXPECT = 0  # a closure will work for the member
    LEAVE = 1  # none does any more
    BEGIN = 2  # a closure has begun to
    CONTRIBUTE = 3  # a batch's gradients are on every ps
    STOP = 4


class Event(NamedTuple):
    """An event, and what it is to the keeper.

    Attributes:
        happening: A `Happening`, scalar int64.
        member: Whose, scalar int64.
        turn: Of the closure that it tells of, scalar int64.
        round: For which it has contributed, scalar int64.
        numbers: Records of the batch and change of the lease's progress, `[1 + CHANGE]` float64.
        held: The turn that has had the member's place so far, scalar int64.
        before: The member's standing before, scalar int64.
        after: Its standing after, scalar int64.
    """

    happening: tf.Tensor
    member: tf.Tensor
    turn: tf.Tensor
    round: tf.Tensor
    numbers: tf.Tensor
    held: tf.Tensor
    before: tf.Tensor
    after: tf.Tensor

    def is_a(self, happening: Happening) -> tf.Tensor:
        """Whether it is a happening, scalar bool."""
        return tf.equal(self.happening, happening)

    def change_of(self, standing: Standing) -> tf.Tensor:
        """By how much it changes the number of members in a standing, scalar int64."""
        after, before = (
            tf.cast(tf.equal(each, standing), tf.int64) for each in (self.after, self.before)
        )
        return after - before


class Barrier(abc.ABC):
    """A keeper on the first ps who lets members go on, and how workers and chief talk to it.

    A member is a slot of leases, whichever worker trains them. The keeper, one function that runs
    as long as the training does, takes events from a queue: who is expected, who has begun, who has
    contributed. What each does to a member is in `transitions`. It answers with tokens. A worker's
    next pull waits for its token on the ps, so that the barrier costs no message of its own.
    Nothing of it passes through the chief. What the keeper does for an event does not grow with the
    number of members, what it does once in a round does.

    Attributes:
        keep: The keeper, a function without arguments.
        has_rounds: Whether it closes rounds.
    """

    has_rounds: bool

    def __init__(
        self,
        store: ParameterStore,
        progress: LeaseProgress,
        members: int,
        has_backups: bool = False,
    ):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            progress: How far the members' leases have come.
            members: Slots of leases.
            has_backups: Whether rounds close without waiting for everybody.
        """
        self._store = store
        self._progress = progress
        self._members = members
        self._has_backups = has_backups
        self._device = store.devices[0]
        with tf.device(self._device):
            self._events = tf.queue.FIFOQueue(_EVENTS, [tf.float64], shapes=[[_WIDTH]])
            self._tokens = [
                tf.queue.FIFOQueue(_EVENTS, [tf.int64], shapes=[[FIELDS]])
                for _ in range(members * _TURNS + 1)  # the last is that of all who stray
            ]
            # Stacked once: a function takes all of them as one argument.
            self._handles = tf.stack([queue.queue_ref for queue in self._tokens])
            self._turns = tf.Variable(tf.zeros([members], tf.int64), trainable=False)
            away = tf.fill([members], np.int64(Standing.AWAY))
            status = tf.concat([tf.zeros([_STANDINGS], tf.int64), away], 0)
            self._status = tf.Variable(status, trainable=False)
        self.keep = tf.function(self._keep, input_signature=[], autograph=False)

    def begin(self, place: tf.Tensor, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """In a closure: takes the place of a member, unless it has another lease by now.

        Args:
            place: The member with the number of its lease, as `LeaseProgress.place` gives it.
            worker: Index of the worker, scalar int64.

        Returns:
            The token to pull with first, and the steps already trained of its lease, scalar int64.
            Where the place is refused, the token's round is -1.
        """
        progress = self._progress

        def announce(member: tf.Tensor, turn: tf.Tensor, has_begun: tf.Tensor) -> tf.Operation:
            event = _event(Kind.BEGIN, member, turn)
            return self._events.enqueue_many(event[tf.newaxis][: tf.cast(has_begun, tf.int32)])

        with tf.device(self._device):
            turn, _ = progress.begin(place, worker, announce)
            member = progress.lane_of(place)

            def refuse() -> tf.Tensor:
                with tf.device(self._device):
                    return tf.stack([member, turn, _int64(DISPLACED), 0])

            token = tf.cond(turn >= 0, lambda: self._first_token(member, turn), refuse)
            return token, self._steps(member, token)

    def begin_again(self, token: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """In a closure that has missed a round: has others wait for its member again.

        Args:
            token: The one that says so.

        Returns:
            As `begin` does.
        """
        member = token[MEMBER]
        with tf.device(self._device):
            turn = self._turn_now(member, token[TURN])
            begun = self._events.enqueue(_event(Kind.BEGIN, member, turn))
            with tf.control_dependencies([begun]):
                token = self._first_token(member, turn)
            return token, self._steps(member, token)

    def contribute(
        self, token: tf.Tensor, gradients: Gradients, records: tf.Tensor, change: tf.Tensor
    ) -> tf.Tensor:
        """In a closure: sends a batch's gradients and waits until the member may go on.

        Args:
            token: What the batch's parameters were pulled with.
            gradients: The batch's.
            records: How many it has, scalar int32.
            change: What it adds to the lease's progress, `[4]` float64.

        Returns:
            The next token.
        """
        # One tensor: each one that travels costs a message.
        numbers = tf.concat([[tf.cast(records, tf.float64)], change], 0)
        sent = self._send(token, gradients)
        with tf.device(self._device), tf.control_dependencies(sent):
            member = token[MEMBER]
            turn = self._turn_now(member, token[TURN])
            said = tf.cast(
                tf.stack([_int64(Kind.CONTRIBUTE), member, turn, token[ROUND]]), tf.float64
            )
            announced = self._events.enqueue(tf.concat([said, numbers], 0))
        with tf.device(self._device), tf.control_dependencies([announced]):
            return self._next_token(member, turn)

    def expect(self, members: Sequence[int]) -> None:
        """On the chief: has others wait for members, for whom closures are about to begin."""
        self._tell(Kind.EXPECT, members)

    def leave(self, members: Sequence[int]) -> None:
        """On the chief: has others wait no more for members, until a closure begins for them."""
        self._tell(Kind.LEAVE, members)

    def stop(self) -> None:
        """On the chief: ends the keeper."""
        self._tell(Kind.STOP, [0])

    def status(self) -> BarrierStatus:
        """On the chief: where the members are."""
        round_, dropped, *standings = self._status.numpy()
        return BarrierStatus(int(round_), int(dropped), [Standing(each) for each in standings])

    def _tell(self, kind: Kind, members: Sequence[int]) -> None:
        events = np.zeros([len(members), _WIDTH])
        events[:, 0], events[:, 1] = kind, members
        if len(events):
            with tf.device(self._device):
                self._events.enqueue_many(events)

    @abc.abstractmethod
    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        """In a closure: sends gradients; returns what must be over before the keeper is told."""

    @abc.abstractmethod
    def _keep(self) -> tf.Tensor:
        """The keeper; what it returns is for people."""

    def _first_token(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        """In a closure that has said that it begins: waits for the token to pull with first."""

        def is_of_another(token: tf.Tensor) -> tf.Tensor:
            with tf.device(self._device):
                return tf.not_equal(token[TURN], turn)

        def give_back(token: tf.Tensor) -> tf.Tensor:
            with tf.device(self._device), tf.control_dependencies([self._give(token)]):
                return tf.stack([member, turn, _int64(DISPLACED), 0])

        def take(token: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(self._device):
                # What an earlier closure has left is for nobody; a later one waits for its own.
                is_left = token[TURN] < turn
                another = tf.cond(
                    is_left, lambda: self._next_token(member, turn), lambda: give_back(token)
                )
                return (another,)

        with tf.device(self._device):
            token = self._next_token(member, turn)
            (token,) = tf.while_loop(is_of_another, take, (token,))
            return token

    def _steps(self, member: tf.Tensor, token: tf.Tensor) -> tf.Tensor:
        """In a closure: steps trained of a lease when its first token has arrived, scalar int64."""
        # What its lease's last closure contributed is recorded by now, or never will be.
        with tf.device(self._device), tf.control_dependencies([token]):
            return tf.cast(self._progress.lane(member)[1], tf.int64)

    def _turn_now(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        """In a closure, on the first ps: the turn with which it speaks and waits.

        At the queue of a turn that is long over another closure may wait by now.
        """
        holds = self._progress.holds(member, turn)
        return tf.where(holds, turn, _int64(STRAY))

    def _next_event(self, round_: tf.Tensor) -> Event:
        """Takes an event, and says what it is to the member; does not yet change anything.

        Args:
            round_: The open one, scalar int64.
        """
        event = self._events.dequeue()
        kind, member, turn, of_round = tf.unstack(tf.cast(event[:FIELDS], tf.int64))
        held = self._turns.sparse_read(member)
        begins, contributes = tf.equal(kind, Kind.BEGIN), tf.equal(kind, Kind.CONTRIBUTE)
        strays = (begins & (turn < held)) | (contributes & tf.not_equal(turn, held))
        is_late = contributes & tf.not_equal(of_round, round_) & self.has_rounds
        happening = tf.where(is_late, _int64(Happening.IS_LATE), kind)
        happening = tf.where(strays, _int64(Happening.STRAYS), happening)
        before = self._status.sparse_read(_STANDINGS + member)
        table = tf.constant(after_happening(self._has_backups), tf.int64)
        after = tf.gather_nd(table, tf.stack([happening, before]))
        return Event(happening, member, turn, of_round, event[FIELDS:], held, before, after)

    def _note(self, event: Event, round_: tf.Tensor, dropped: tf.Tensor) -> list[tf.Operation]:
        """Notes what becomes of a member, for the keeper and for the chief to see."""
        turn = tf.where(event.is_a(Happening.BEGINS), event.turn, event.held)
        where = tf.stack([_int64(0), _int64(1), _STANDINGS + event.member])
        numbers = tf.stack([round_, dropped, event.after])
        return [_put(self._turns, event.member, turn), _put(self._status, where, numbers)]

    def _show(self, round_: tf.Tensor, dropped: tf.Tensor, standings: tf.Tensor) -> tf.Operation:
        """Notes the standings of all members."""
        numbers = tf.concat([[round_, dropped], standings], 0)
        return self._status.assign(numbers, read_value=False)

    def _standings(self) -> tf.Tensor:
        """Of all members, `[members]` int64."""
        return self._status.read_value()[_STANDINGS:]

    def _note_standings(self, members: tf.Tensor, standing: Standing) -> tf.Operation:
        """Notes that members, `[n]` int64, have a standing now."""
        standings = tf.fill(tf.shape(members), _int64(standing))
        return _put(self._status, _STANDINGS + members, standings)

    def _answer(self, event: Event, round_: tf.Tensor) -> None:
        """Gives a token to whom an event tells of, unless it has to wait for one.

        Args:
            event: The event.
            round_: What the token of one that may go on says of the round, scalar int64.
        """
        begins, is_late = event.is_a(Happening.BEGINS), event.is_a(Happening.IS_LATE)
        strays = event.is_a(Happening.STRAYS)
        is_missed = tf.constant(False) if self._has_backups else is_late
        round_ = tf.where(is_missed, _int64(MISSED), round_)
        round_ = tf.where(strays, _int64(DISPLACED), round_)
        token = tf.stack([event.member, event.turn, round_, 0])
        # A closure that has contributed, and waits, learns that another one begins in its place. It
        # comes first: both may wait at the same queue.
        ends = begins & tf.equal(event.before, Standing.ARRIVED)
        last = tf.stack([event.member, event.held, DISPLACED, 0])
        ended = tf.cond(ends, lambda: self._give(last), tf.no_op)
        with tf.control_dependencies([ended]):
            tf.cond(begins | is_late | strays, lambda: self._give(token), tf.no_op)

    def _give_all(self, members: tf.Tensor, round_: tf.Tensor) -> None:
        """Gives tokens to members whose contributions were taken.

        Args:
            members: `[n]` int64.
            round_: What the tokens say of the round, scalar int64.
        """
        turns = tf.gather(self._turns, members)

        def give(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(self._device):
                token = tf.stack([members[index], turns[index], round_, 1])
                with tf.control_dependencies([self._give(token)]):
                    return (index + 1,)

        tf.while_loop(lambda index: index < tf.size(members), give, (0,))

    def _give(self, token: tf.Tensor) -> tf.Operation:
        with tf.device(self._device):
            handle = self._tokens_of(token[MEMBER], token[TURN])
            return tf.raw_ops.QueueEnqueueV2(handle=handle, components=[token])

    def _next_token(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        handle = self._tokens_of(member, turn)
        (token,) = tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])
        return tf.ensure_shape(token, [FIELDS])

    def _tokens_of(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        """The queue in which a member finds its tokens in one of its turns.

        Each turn has another: a closure that was given up may still wait at its own.
        """
        last = _int64(self._members * _TURNS)
        index = tf.where(tf.equal(turn, STRAY), last, member * _TURNS + turn % _TURNS)
        return tf.gather(self._handles, index)


def _event(kind: Kind, member: Any, turn: Any) -> tf.Tensor:
    numbers = [tf.cast(number, tf.float64) for number in (kind, member, turn)]
    return tf.concat([numbers, tf.zeros([_WIDTH - 3], tf.float64)], 0)


def _put(variable: tf.Variable, where: tf.Tensor, values: tf.Tensor) -> tf.Operation:
    """Writes elements or rows of a variable, and no copy of it."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=where, updates=values)


def _int64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)
