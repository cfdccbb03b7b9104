"""Where workers wait for each other: what closures and the chief say to the barrier loop."""

import abc
from collections.abc import Sequence

import tensorflow as tf

from tfps.barrier.loop import MessageLoop
from tfps.barrier.member_state import BarrierStatus
from tfps.barrier.messages import (
    ATTEMPT,
    DISPLACED,
    MEMBER,
    ROUND,
    Answer,
    Kind,
    answer_token,
    message,
)
from tfps.leases.progress import LeaseProgress
from tfps.store.messages import Gradients
from tfps.store.parameter_store import ParameterStore


class Barrier(abc.ABC):
    """A loop on the first ps that lets members go on, and how workers and chief talk to it.

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
        """In a closure: takes the place of a member, unless the member has another lease by now.

        Args:
            place: The member with the number of its lease, as `LeaseProgress.place` gives it.
            worker: Index of the worker, scalar int64.

        Returns:
            The token to pull with first, and the steps already trained of its lease, scalar int64.
            Where the place is refused, the token tells the closure to end.
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
        """In a closure: sends a batch's gradients and waits until the member may go on.

        Args:
            records: How many the batch has, scalar int32.
            change: What the batch adds to the lease's progress, `[CHANGE]` float64.
        """
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
        self._loop.messages.tell(Kind.EXPECT, members)

    def leave(self, members: Sequence[int]) -> None:
        """On the chief: has others wait no more for members, until a closure begins for them."""
        self._loop.messages.tell(Kind.LEAVE, members)

    def stop(self) -> None:
        """On the chief: ends the barrier loop."""
        self._loop.messages.tell(Kind.STOP, [0])

    def status(self) -> BarrierStatus:
        """On the chief: where the members are."""
        return self._loop.status()

    @abc.abstractmethod
    def _send(
        self, token: tf.Tensor, gradients: Gradients, trained: tf.Tensor
    ) -> tuple[list[tf.Tensor | tf.Operation], tf.Tensor]:
        """In a closure: sends gradients, and what the loop is to be told with them.

        Returns:
            What must be over before the loop is told, and what was trained, where it has arrived.
        """

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
