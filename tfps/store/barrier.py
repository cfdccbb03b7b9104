"""Where workers wait for each other, on the first ps."""

import abc
import enum
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.store.barrier_status import BarrierStatus, Standing
from tfps.store.gradients import Gradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.token import FIELDS, MEMBER, ROUND, TURN

CHANGE = 4  # numbers of a lease's progress
_TURNS = 4  # queues of tokens for each member, used in turn
_EVENTS = 1 << 16  # that may wait


class Kind(enum.IntEnum):
    """What an event says."""

    EXPECT = 0  # a closure will work for the member
    LEAVE = 1  # none does any more
    BEGIN = 2  # a closure has begun to
    CONTRIBUTE = 3  # a batch's gradients are on every ps
    STOP = 4


class Barrier(abc.ABC):
    """A keeper on the first ps who lets members go on, and how workers and chief talk to it.

    A member is a slot of leases, whichever worker trains them. The keeper, one function that runs
    as long as the training does, takes events from a queue: who is expected, who has begun, who has
    contributed. It answers with tokens. A worker's next pull waits for its token on the ps, so that
    the barrier costs no message of its own. Nothing of it passes through the chief.

    Attributes:
        keep: The keeper, a function without arguments.
        has_rounds: Whether it closes rounds.
    """

    has_rounds: bool

    def __init__(self, store: ParameterStore, members: int):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            members: Slots of leases.
        """
        self._store = store
        self._members = members
        self._device = store.devices[0]
        with tf.device(self._device):
            width = 1 + FIELDS + CHANGE
            self._events = tf.queue.FIFOQueue(_EVENTS, [tf.float64], shapes=[[width]])
            self._tokens = [
                tf.queue.FIFOQueue(_EVENTS, [tf.int64], shapes=[[FIELDS]])
                for _ in range(members * _TURNS)
            ]
            self._status = tf.Variable(tf.zeros([2 + members], tf.int64), trainable=False)
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
        progress = self._store.progress

        def announce(member: tf.Tensor, turn: tf.Tensor, has_begun: tf.Tensor) -> tf.Operation:
            event = _event(Kind.BEGIN, member, turn)
            return self._events.enqueue_many(event[tf.newaxis][: tf.cast(has_begun, tf.int32)])

        with tf.device(self._device):
            turn, _ = progress.begin(place, worker, announce)
            member = progress.slot_of(place)

            def wait() -> tf.Tensor:
                with tf.device(self._device):
                    return self._next_token(member, turn)

            def refuse() -> tf.Tensor:
                with tf.device(self._device):
                    return tf.stack([member, turn, tf.constant(-1, tf.int64), 0])

            token = tf.cond(turn >= 0, wait, refuse)
            # What its lease's last closure contributed is recorded by now, or never will be.
            with tf.control_dependencies([token]):
                steps = tf.cast(progress.slot(member)[1], tf.int64)
        return token, steps

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
            said = [[float(Kind.CONTRIBUTE)], tf.cast(token[: ROUND + 1], tf.float64), numbers]
            announced = self._events.enqueue(tf.concat(said, 0))
        with tf.device(self._device), tf.control_dependencies([announced]):
            return self._next_token(token[MEMBER], token[TURN])

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
        for member in members:
            with tf.device(self._device):
                self._events.enqueue(_event(kind, member, 0))

    @abc.abstractmethod
    def _send(self, token: tf.Tensor, gradients: Gradients) -> list[tf.Operation]:
        """In a closure: sends gradients; returns what must be over before the keeper is told."""

    @abc.abstractmethod
    def _keep(self) -> tf.Tensor:
        """The keeper; what it returns is for people."""

    def _give_all(self, members: tf.Tensor, turns: tf.Tensor, round_: tf.Tensor) -> None:
        """Gives tokens to members whose contributions were taken.

        Args:
            members: `[n]` int64.
            turns: The turn of every member, `[members]` int64.
            round_: What the tokens say of the round, scalar int64.
        """

        def give(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(self._device):
                member = members[index]
                token = tf.stack([member, turns[member], round_, 1])
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
        handles = tf.stack([queue.queue_ref for queue in self._tokens])
        return tf.gather(handles, member * _TURNS + turn % _TURNS)

    def _show(self, round_: tf.Tensor, dropped: tf.Tensor, standings: tf.Tensor) -> tf.Operation:
        """Lets the chief see where the members are."""
        numbers = tf.concat([[round_, dropped], standings], 0)
        return self._status.assign(numbers, read_value=False)


def _event(kind: Kind, member: Any, turn: Any) -> tf.Tensor:
    numbers = [tf.cast(number, tf.float64) for number in (kind, member, turn)]
    return tf.concat([numbers, tf.zeros([FIELDS - 2 + CHANGE], tf.float64)], 0)
