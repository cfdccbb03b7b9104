"""Messages to the barrier loop, its tokens, and the queues of both.

A message says what the chief or a closure does for a member. A token is the leave to pull once,
`[TOKEN_FIELDS]` int64: member, attempt, round, and whether the last contribution was taken.
"""

import enum
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# The fields of a token. A round below 0 is an `Answer`.
MEMBER, ATTEMPT, ROUND, TAKEN = range(4)
TOKEN_FIELDS = 4
# In the place of an attempt's number: that of every closure that knows that it is displaced, which
# means that another one has its member's place.
DISPLACED = -1
CHANGE = 4  # numbers of a lease's progress
_HEADER = 4  # numbers of a message: kind, member, attempt, round
_WIDTH = _HEADER + 1 + CHANGE
_CAPACITY = 1 << 16  # of a queue
_QUEUES = 4  # of tokens for each member, used by its attempts in turn


def new_queue(
    capacity: int, dtypes: Sequence[tf.DType], shapes: Sequence[Any] | None = None
) -> tf.queue.QueueBase:
    """Creates a queue on the device at hand, which has nothing in it.

    `tf.queue.FIFOQueue` is named by how many things its process has made before, whatever name it
    is given, and a ps holds the queues of a chief that was killed: the next chief would continue
    with what they hold. `shapes` is None where those of an element's tensors vary.
    """
    handle = tf.raw_ops.FIFOQueueV2(
        component_types=dtypes,
        shapes=[] if shapes is None else shapes,
        capacity=capacity,
        shared_name=f"barrier-{uuid.uuid4()}",
    )
    return tf.queue.QueueBase(dtypes, shapes, None, handle)


class Kind(enum.IntEnum):
    """What a message says."""

    EXPECT = 0  # the chief: a closure will work for the member
    LEAVE = 1  # the chief: none does any more, or its worker is lost
    BEGIN = 2  # a closure: it has begun, or begins again after it was late
    CONTRIBUTE = 3  # a closure: its batch's gradients are on every ps
    STOP = 4  # the chief: the barrier loop is to end


class Answer(enum.IntEnum):
    """The answer to a closure; those below 0 stand in the place of a token's round."""

    NEXT = 1  # its contribution is taken: it pulls for the next batch
    PULL = 0  # it pulls for the batch at hand
    END = -1  # it is displaced, and ends
    BEGIN_AGAIN = -2  # it reads its lease again, from the first batch that is not recorded
    NOTHING = -3  # it gets no token


class Message(NamedTuple):
    """A message; `trained` is records and change of progress, `[1 + CHANGE]` float64."""

    kind: tf.Tensor
    member: tf.Tensor
    attempt: tf.Tensor
    round: tf.Tensor
    trained: tf.Tensor


def message(
    kind: Kind, member: Any, attempt: Any = 0, round_: Any = 0, trained: tf.Tensor | None = None
) -> tf.Tensor:
    """Makes a message as it lies in a queue: one tensor, `[_WIDTH]` float64."""
    header = tf.cast(tf.stack([int(kind), member, attempt, round_]), tf.float64)
    if trained is None:
        trained = tf.zeros([1 + CHANGE], tf.float64)
    return tf.concat([header, trained], 0)


class MessageQueue:
    """The queue of messages to the barrier loop, on the first ps."""

    def __init__(self, device: str):
        self._device = device
        with tf.device(device):
            self._queue = new_queue(_CAPACITY, [tf.float64], [[_WIDTH]])

    def put(self, message: tf.Tensor) -> tf.Operation:
        with tf.device(self._device):
            return self._queue.enqueue(message)

    def put_all(self, messages: tf.Tensor) -> tf.Operation:
        """Puts messages, `[n, _WIDTH]` float64, one after the other."""
        with tf.device(self._device):
            return self._queue.enqueue_many(messages)

    def notify(self, kind: Kind, members: Sequence[int]) -> None:
        """On the chief: puts a message of the same kind for each of several members."""
        messages = np.zeros([len(members), _WIDTH])
        messages[:, 0], messages[:, 1] = kind, members
        if len(members):
            self.put_all(messages)

    def take(self) -> Message:
        """Waits for a message."""
        taken = self._queue.dequeue()
        kind, member, attempt, round_ = tf.unstack(tf.cast(taken[:_HEADER], tf.int64))
        return Message(kind, member, attempt, round_, taken[_HEADER:])


class TokenQueues:
    """The queues on the first ps in which closures find their tokens.

    Attempts of a member take turns on several: a closure that was given up may still wait at its
    own. Displaced closures share one more, since another attempt may wait where theirs was.
    """

    def __init__(self, members: int, device: str):
        self._members = members
        self._device = device
        with tf.device(device):
            self.queues = [
                new_queue(_CAPACITY, [tf.int64], [[TOKEN_FIELDS]])
                for _ in range(members * _QUEUES + 1)
            ]
            # Stacked once: a function takes all of them as one argument.
            self._handles = tf.stack([queue.queue_ref for queue in self.queues])

    def put(self, token: tf.Tensor) -> tf.Operation:
        """Gives a token to the attempt that it names."""
        with tf.device(self._device):
            handle = self._handle(token[MEMBER], token[ATTEMPT])
            return tf.raw_ops.QueueEnqueueV2(handle=handle, components=[token])

    def take(self, member: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: waits for a token."""
        with tf.device(self._device):
            handle = self._handle(member, attempt)
            (token,) = tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])
            return tf.ensure_shape(token, [TOKEN_FIELDS])

    def take_first(self, member: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure that has said that it begins: waits for the token to pull with first."""

        def is_of_another(token: tf.Tensor) -> tf.Tensor:
            with tf.device(self._device):
                return tf.not_equal(token[ATTEMPT], attempt)

        def take_another(token: tf.Tensor) -> tuple[tf.Tensor]:
            def give_back() -> tf.Tensor:
                with tf.device(self._device), tf.control_dependencies([self.put(token)]):
                    return answer_token(Answer.END, member, attempt)

            with tf.device(self._device):
                # What an earlier closure has left is for nobody; a later one waits for its own.
                is_left = token[ATTEMPT] < attempt
                return (tf.cond(is_left, lambda: self.take(member, attempt), give_back),)

        with tf.device(self._device):
            first = self.take(member, attempt)
            (token,) = tf.while_loop(is_of_another, take_another, (first,))
            return token

    def _handle(self, member: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        last = tf.constant(self._members * _QUEUES, tf.int64)
        own = member * _QUEUES + attempt % _QUEUES
        return tf.gather(self._handles, tf.where(tf.equal(attempt, DISPLACED), last, own))


def answer_token(answer: Answer, member: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
    """The token that ends an attempt, or starts it again."""
    return tf.stack([member, attempt, int(answer), 0])
