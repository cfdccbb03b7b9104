"""A worker's loop over the batches of a lease."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.data.record_source import Batching, SourceTensors, read_batches, read_good_batches
from tfps.leases.progress import REFUSED, Attempt
from tfps.model.inputs import batch_records
from tfps.model.stateless_model import Features, Labels
from tfps.model.variables import draw_of
from tfps.worker.step import Batch

# Steps in one iteration of a loop: that many copies of a step are traced, and one more. On a
# cluster each iteration costs messages to every ps. In one process it costs none: three steps
# trained a DLRM with as little CPU as ten and 4 s less of tracing, one with 15 % more. A short run
# has fewer: on 2 workers and 2 ps each copy takes 1.5 CPU-seconds before the first step.
UNROLL = 10
UNROLL_IN_ONE_PROCESS = 3
UPDATES_PER_COPY = 1000
MOST_STEPS = 32
_TRIED_STEPS = 8  # while nothing is known
_SHARE = 0.1  # of a worker's time that exchanges may take
_EXCHANGES = 24  # that are measured before it is chosen
_log = logging.getLogger(__name__)


class ReadBatch(NamedTuple):
    """Records before their pull; `number` is None for the one due, `bad` where none are."""

    features: Features
    labels: Labels
    number: tf.Tensor | None = None
    bad: tf.Tensor | None = None

    @property
    def records(self) -> tf.Tensor:
        """How many records it has, negatives among them, scalar int32."""
        return batch_records(self.features, self.labels)


class PulledBatch(NamedTuple):
    """A batch that is ready to be trained."""

    batch: Batch
    number: tf.Tensor | None
    bad: tf.Tensor | None

    @property
    def records(self) -> tf.Tensor:
        """How many records it has, negatives among them, scalar int32."""
        return batch_records(self.batch.features, self.batch.labels)


class BatchPrefetcher:
    """Some batches that are pulled for, and some that are only read, as the state of a loop."""

    def __init__(
        self,
        read: Callable[[], ReadBatch],
        pull: Callable[[Features, Labels], Batch],
        pulled: int,
        unpulled: int,
    ):
        self._read, self._pull, self._depth = read, pull, pulled
        held = [self._pulled(read()) for _ in range(pulled)]
        self._template = [*held, *(read() for _ in range(unpulled))]
        self.tensors = tensors_of(self._template)

    def next(
        self, tensors: Sequence[tf.Tensor]
    ) -> tuple[PulledBatch, PulledBatch, list[tf.Tensor]]:
        """Reads one more batch and pulls for one."""
        held = [*restored(self._template, tensors), self._read()]
        newest = held[self._depth] = self._pulled(held[self._depth])
        return held[0], newest, tensors_of(held[1:])

    def follow(self, tensors: Sequence[tf.Tensor], number: tf.Tensor, batches: int) -> tf.Tensor:
        """Whether the next batches are due and can be trained, scalar bool; several: none empty."""
        next_ones = restored(self._template, tensors)[:batches]
        numbers = tf.stack([each.number for each in next_ones])
        follow = tf.reduce_all(tf.equal(numbers, number + tf.range(batches, dtype=tf.int64)))
        if batches == 1:
            return follow
        least = tf.reduce_min(tf.stack([each.records for each in next_ones]))
        return follow & (least > 0)

    def _pulled(self, read: ReadBatch) -> PulledBatch:
        return PulledBatch(self._pull(read.features, read.labels), read.number, read.bad)


def tensors_of(batches: Sequence[Any]) -> list[tf.Tensor]:
    """The tensors of batches, for a loop to carry; the rest is the same in every iteration."""
    parts = tf.nest.flatten(list(batches), expand_composites=True)
    # Copied to where the loop is: else those that were pulled would travel twice.
    return [tf.identity(part) for part in parts if tf.is_tensor(part)]


def restored(template: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[Any]:
    """Batches like the template's, of the tensors that `tensors_of` gave."""
    remaining = iter(tensors)
    parts = tf.nest.flatten(list(template), expand_composites=True)
    parts = [next(remaining) if tf.is_tensor(part) else part for part in parts]
    return tf.nest.pack_sequence_as(list(template), parts, expand_composites=True)


class ExchangeTimes(NamedTuple):
    """Seconds of a worker's exchanges with the ps; `exchanges` is 0 where they are not timed."""

    exchanges: int
    exchange_seconds: float
    step_seconds: float


class Outcome(NamedTuple):
    """Result of an attempt at a lease.

    `bad_step` is the shard's first batch with a loss that is not finite, or -1; reading the
    progress after it finds all that the attempt trained. `times` are `ExchangeTimes`, `[3]`
    float64.
    """

    attempt: tf.Tensor
    bad_step: tf.Tensor
    times: tf.Tensor | Sequence[float] = (0.0, 0.0, 0.0)


class Loop(Protocol):
    """Trains leases in one mode; traced into the closure that trains a lease."""

    def train(self, batches: "LeaseBatches", worker: tf.Tensor) -> Outcome:
        """In a closure: begins an attempt at a lease and trains what is left of it."""


def iterate(
    unroll: int,
    goes_on: Callable[..., tf.Tensor],
    train: Callable[..., tuple[Any, ...]],
    state: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Runs a loop of several steps per iteration, then one of single steps for the rest.

    `goes_on` says for a number of steps and the state whether to make them, scalar bool; `train`
    makes them.
    """
    for steps in dict.fromkeys([unroll, 1]):
        condition, body = (functools.partial(each, steps) for each in (goes_on, train))
        state = tf.while_loop(condition, body, state)
    return state


def note_failure(bad_step: tf.Tensor, number: tf.Tensor, loss: tf.Tensor) -> tf.Tensor:
    """The shard's first batch whose loss was not finite, or -1, after one more batch."""
    return tf.where((bad_step < 0) & ~tf.math.is_finite(loss), number, bad_step)


def trained_batch(loss: tf.Tensor, records: tf.Tensor, bad: tf.Tensor | float = 0.0) -> tf.Tensor:
    """A batch's change of its lease's progress, `[0, steps, bad, loss_sum]` float64."""
    return tf.stack([0.0, 1.0, bad, loss * tf.cast(records, tf.float64)])


class LeaseBatches:
    """In a closure: its lease's batches, numbered in the shard, `end` exclusive; int64.

    `place` is that of `LeaseProgress.place`. With `may_be_bad`, batches end before the first that
    cannot be read, and one may be empty.
    """

    def __init__(
        self, source: SourceTensors, numbers: tf.Tensor, batching: Batching, may_be_bad: bool
    ):
        """`numbers` are [first, count, seed, place] int64, in records of the shard."""
        first, count, self._seed, self.place = tf.unstack(numbers)
        self._source = source
        self._batching = batching
        self.may_be_bad = may_be_bad
        self.examples_per_record = batching.examples_per_record
        self.first = first // batching.size
        self.end = -(-(first + count) // batching.size)

    def begin_of(self, attempt: Attempt) -> tf.Tensor:
        """Number of the batch that an attempt trains first; `end` where it was refused."""
        is_refused = tf.equal(attempt.number, REFUSED)
        return tf.where(is_refused, self.end, self.first + attempt.steps)

    def reader(self, begin: tf.Tensor, behind: int = 0) -> Callable[[], ReadBatch]:
        """Reads batch after batch from number `begin`, and up to `behind` empty ones at the end."""
        order = self._batching, self._seed, (begin, self.end)
        if not self.may_be_bad:
            good = iter(read_batches(self._source, *order, behind))
            return lambda: ReadBatch(*next(good))
        readable = iter(read_good_batches(self._source, *order))

        def read() -> ReadBatch:
            number, (bad, features, labels) = next(readable)
            return ReadBatch(features, labels, number, bad)

        return read

    def draw(self, number: tf.Tensor) -> tf.Tensor:
        """What random layers draw from in the step of a batch, given by its number, `[2]` int64."""
        return draw_of(self._seed, number)


class SyncEvery:
    """How many steps lie between a pull and its push in mode `local_sgd`.

    Where none is given, the first leases are timed: it becomes the least number of steps with
    which a worker waits for exchanges at most a tenth of its time, and no more than 32. What is
    chosen holds for the job's whole life.
    """

    def __init__(self, steps: int, chosen: Callable[[int], None] = lambda steps: None):
        self.steps = steps or _TRIED_STEPS
        self.is_chosen = steps > 0
        self._chosen = chosen
        self._warm: set[int] = set()
        self._measured: list[ExchangeTimes] = []

    @property
    def most_unrecorded(self) -> int:
        """Batches that a lost worker may have pushed without having recorded them, at most."""
        return max(self.steps, _TRIED_STEPS) if self._measured else self.steps

    def measured(self, worker: int, times: ExchangeTimes) -> bool:
        """Takes a lease's times, unless a worker's slow first; whether that is enough to choose."""
        if self.is_chosen or not times.exchanges:
            return False
        if worker not in self._warm:
            self._warm.add(worker)
            return False
        self._measured.append(times)
        if sum(each.exchanges for each in self._measured) < _EXCHANGES:
            return False
        self._choose()
        return True

    def _choose(self) -> None:
        exchanges = sum(each.exchanges for each in self._measured)
        exchange = sum(each.exchange_seconds for each in self._measured) / exchanges
        step = sum(each.step_seconds for each in self._measured) / exchanges / self.steps
        least = math.ceil(exchange * (1 - _SHARE) / _SHARE / step) if step else MOST_STEPS
        self.steps, self.is_chosen = min(max(1, least), MOST_STEPS), True
        _log.info(
            "--mode.sync_every=0: %d, since an exchange takes %.2f ms and a step %.2f ms",
            self.steps,
            1000 * exchange,
            1000 * step,
        )
        self._chosen(self.steps)
