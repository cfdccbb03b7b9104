"""What a worker's loop over the batches of a lease is."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.worker.lease_batches import LeaseBatches

# Steps in one iteration of a loop: so many copies of a step are traced, and one more. On a cluster
# each iteration costs messages to every ps. In one process it costs none: three steps trained a
# DLRM with as little CPU as ten and 4 s less of tracing, one with 15 % more.
UNROLL = 10
UNROLL_IN_ONE_PROCESS = 3


class ExchangeTimes(NamedTuple):
    """What a worker's exchanges with the ps took, between several steps that it makes by itself.

    Attributes:
        exchanges: How many there were; 0 where they are not timed.
    """

    exchanges: int
    exchange_seconds: float
    step_seconds: float


class Outcome(NamedTuple):
    """What came of an attempt at a lease.

    Attributes:
        attempt: The attempt's number, scalar int64.
        bad_step: Number in the shard of the first batch whose loss was not finite, or -1, scalar
            int64. Who reads the lease's progress after it finds all that the attempt has trained.
        times: The numbers of `ExchangeTimes`, `[3]` float64.
    """

    attempt: tf.Tensor
    bad_step: tf.Tensor
    times: tf.Tensor | Sequence[float] = (0.0, 0.0, 0.0)


class Loop(Protocol):
    """Trains leases in one mode; traced into the closure that trains a lease."""

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        """In a closure: begins an attempt at a lease and trains what is left of it.

        Args:
            worker: Index of the worker, scalar int64.
        """


def iterate(
    unroll: int,
    goes_on: Callable[..., tf.Tensor],
    train: Callable[..., tuple[Any, ...]],
    state: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Runs a loop with several steps in an iteration, then one with a single step for the rest.

    Args:
        goes_on: Given a number of steps and the state, says whether so many more are made, scalar
            bool.
        train: Given the same, makes these steps; the state behind them.
    """
    for steps in dict.fromkeys([unroll, 1]):
        condition, body = (functools.partial(each, steps) for each in (goes_on, train))
        state = tf.while_loop(condition, body, state)
    return state


def note_failure(bad_step: tf.Tensor, number: tf.Tensor, loss: tf.Tensor) -> tf.Tensor:
    """The first batch whose loss was not finite, after one more batch.

    Args:
        bad_step: The first one before, or -1, scalar int64.
        number: Number of the batch in its shard, scalar int64.
        loss: The batch's loss, a scalar.
    """
    return tf.where((bad_step < 0) & ~tf.math.is_finite(loss), number, bad_step)


def trained_batch(loss: tf.Tensor, records: tf.Tensor, bad: tf.Tensor | float = 0.0) -> tf.Tensor:
    """What one trained batch adds to its lease's progress, `[0, steps, bad, loss_sum]` float64.

    Args:
        loss: The batch's loss, scalar float64.
        records: Number of its records, scalar int32.
        bad: Number of bad records that were left out of it, scalar float64.
    """
    return tf.stack([0.0, 1.0, bad, loss * tf.cast(records, tf.float64)])
