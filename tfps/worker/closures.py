"""The closures that workers run: train a lease, evaluate a shard."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.data.record_source import PackedSource, SourceTensors, read_batches, without_rewrites
from tfps.data.schema import Schema
from tfps.experiment.experiment import Experiment
from tfps.leases.lease import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.model.inputs import batch_records
from tfps.store.exchange import norms_by_table
from tfps.worker.loop import ExchangeTimes, LeaseBatches, Loop, Outcome
from tfps.worker.step import Step

State = tuple[Any, ...]


class LeaseResult(NamedTuple):
    """Result of training a lease.

    `steps` counts batches trained over all attempts, -1 where the lease is lost. `bad` counts
    records left out. `bad_step` is the shard's first batch, from 0, with a loss that is not finite,
    or -1. `began` is in seconds since 1970 on the worker's clock.
    """

    attempts: int
    steps: int
    bad: int
    loss_sum: float
    bad_step: int
    worker: int
    began: float
    seconds: float
    times: ExchangeTimes
    judged: np.ndarray  # of the batches that the closure has computed, for `Judged.plus`

    @staticmethod
    def pack(
        progress: tf.Tensor,
        outcome: Outcome,
        worker: tf.Tensor,
        began: tf.Tensor,
        judged: tf.Tensor,
    ) -> tf.Tensor:
        """In a closure: the result as one tensor, `[n]` float64, since each fetch is a call."""
        with tf.control_dependencies([progress]):
            seconds = tf.timestamp() - began
        numbers = [tf.cast(number, tf.float64) for number in (outcome.bad_step, worker)]
        times = tf.cast(outcome.times, tf.float64)
        return tf.concat([progress, tf.stack([*numbers, began, seconds]), times, judged], 0)

    @classmethod
    def unpack(cls, numbers: np.ndarray) -> "LeaseResult":
        """The result of what `pack` made of it, as fetched."""
        attempts, steps, bad, loss_sum, bad_step, worker, began, seconds = numbers[:8].tolist()
        counts, (exchanges, *waited) = (int(attempts), int(steps), int(bad)), numbers[8:11].tolist()
        times, judged = ExchangeTimes(int(exchanges), *waited), numbers[11:]
        return cls(*counts, loss_sum, int(bad_step), int(worker), began, seconds, times, judged)


class Closures:
    """Functions to schedule, each traced once.

    Attributes:
        train: (source, [first, count, seed, place] int64) -> [n] float64, which
            `LeaseResult.unpack` reads. Trains what is left of the lease with `count` records from
            the shard's record `first` on, whose progress is at the place that
            `LeaseProgress.place` named; nothing where the lane has another lease by now. Where
            there may be bad records, a lease ends before the first batch that cannot be read.
        open: (source, first int64) -> records read, int64. Fetches the beginning of a lease, from
            its first record on, so that the worker's client of storage holds it already when the
            lease is trained. What goes wrong is left to the lease itself.
        evaluate: (source, [first, count] int64) -> (loss_sum, labels, predictions, measured).
            `count` records of a shard from record `first` on, a multiple of the batch size, each
            once, in order; `loss_sum` is the sum over records of the loss of their batch; labels
            (what `Task.measured` names, and what is kept) and predictions are dicts by name, and so
            is what the model's own metrics have seen, as of `LayerMetrics.states`.
        gradients: (source, lease as of `train`) -> (gradients, norms). What the first batch of a
            lease gives; nothing of it is pushed: the gradients of the dense parameters in the
            model's order, and by table the gradient norms of the rows that it asks for, `[n]`.
        judged: The labels whose predictions `train` compares with the records.
    """

    def __init__(
        self,
        experiment: Experiment,
        step: Step,
        loop: Loop,
        progress: LeaseProgress,
        worker_index: Callable[[], tf.Tensor],
        locate: Callable[[tf.Tensor], tf.Tensor] = lambda path: path,
        kept: Sequence[Feature] = (),
        has_labels: bool = True,
    ):
        """Makes closures that are traced on first call.

        `kept` are features of fixed shapes that an evaluation returns. Without labels nothing
        trains, and an evaluation's loss means nothing.
        """
        batching, task = EpochOrder.batching(experiment), experiment.task
        self._labels = () if has_labels else task.labels()  # those that are made up
        if not has_labels:
            batching = batching._replace(schema=Schema(task.features(), ()))
        self._batching = batching
        measured = task.measured() if has_labels else ()
        self._measured = tuple(dict.fromkeys((*measured, *kept)))
        self.schema = self._batching.schema.all
        self._may_be_bad = experiment.data.max_bad_records > 0
        self._step = step
        self.judged = step.judged
        self._progress = progress
        self._worker_index = worker_index
        self._locate = locate
        source = PackedSource.signature()
        self.train_by(loop)
        self.gradients = tf.function(
            self._gradients,
            input_signature=[source, tf.TensorSpec([4], tf.int64)],
            autograph=False,
        )
        self.open = tf.function(
            self._open, input_signature=[source, tf.TensorSpec([], tf.int64)], autograph=False
        )
        self.evaluate = tf.function(
            self._evaluate, input_signature=[source, tf.TensorSpec([2], tf.int64)], autograph=False
        )

    def train_by(self, loop: Loop) -> None:
        """Has leases that are sent from now on trained by another loop."""
        self.train = tf.function(
            functools.partial(self._train, loop),
            input_signature=[PackedSource.signature(), tf.TensorSpec([4], tf.int64)],
            autograph=False,
        )

    def _train(self, loop: Loop, source: PackedSource, lease: tf.Tensor) -> tf.Tensor:
        began, worker = tf.timestamp(), self._worker_index()
        batches = LeaseBatches(self._located(source), lease, self._batching, self._may_be_bad)
        with self._step.store.in_closure(), self._step.judging() as judged:
            outcome = loop.train(batches, worker)
        with tf.control_dependencies([outcome.bad_step]):
            lane = self._progress.lane_of(batches.place)
            trained = self._progress.result(lane, outcome.attempt)
            counts = judged()
        return LeaseResult.pack(trained, outcome, worker, began, counts)

    def _gradients(
        self, source: PackedSource, lease: tf.Tensor
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        batches = LeaseBatches(self._located(source), lease, self._batching, self._may_be_bad)
        store = self._step.store
        with store.in_closure():
            read = batches.reader(batches.first)()
            batch = self._step.pull(read.features, read.labels)
            _, found = self._step.gradients(batch, batches.draw(batches.first))
        rows = [
            group.gradients.gradient(each)
            for group, each in zip(store.groups, found.rows, strict=True)
        ]
        norms = norms_by_table(store.layout, found.pulled.lookups, rows)
        return list(found.dense), norms

    def _zeros(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        """Values of the labels that records lack, which a model's loss is made of."""
        count = tf.cast(records, tf.int32)
        return {label.name: tf.zeros([count, *label.shape], label.dtype) for label in self._labels}

    def _located(self, packed: PackedSource) -> SourceTensors:
        """The source that this worker reads in a shard's stead."""
        source = packed.unpack()
        return source._replace(path=self._locate(source.path))

    def _open(self, packed: PackedSource, first: tf.Tensor) -> tf.Tensor:
        source = self._located(packed)
        block = max(1, self._batching.block) * self._batching.size
        _, offset = source.known(first // block * block)
        # A failure uses up the number, so that it comes once.
        numbered = tf.data.Dataset.zip((tf.data.Dataset.range(1), source.from_byte(offset)))
        read = without_rewrites(numbered).ignore_errors()
        return read.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

    def _evaluate(self, source: PackedSource, bounds: tf.Tensor) -> tuple[tf.Tensor, ...]:
        first, count = tf.unstack(bounds)
        size = self._batching.size
        begin, end = first // size, -(-(first + count) // size)
        total = tf.cast(end - begin, tf.int32)
        batching = self._batching._replace(block=0, negatives=None)
        batches = read_batches(self._located(source), batching, bounds=(begin, end))
        iterator = iter(batches)

        def one(
            step: tf.Tensor,
            loss_sum: tf.Tensor,
            measured: dict[str, tf.Tensor],
            *arrays: dict[str, tf.TensorArray],
        ) -> State:
            features, labels = next(iterator)
            labels = {**labels, **self._zeros(batch_records(features, labels))}
            loss, predictions, seen = self._step.predict(features, labels)
            records = batch_records(features, labels)
            loss_sum += tf.cast(loss, tf.float64) * tf.cast(records, tf.float64)
            written = [
                {name: array.write(step, values[name]) for name, array in some.items()}
                for some, values in zip(arrays, ({**features, **labels}, predictions), strict=True)
            ]
            added = {name: total + seen[name] for name, total in measured.items()}
            return step + 1, loss_sum, added, *written

        def array(dtype: Any) -> tf.TensorArray:
            return tf.TensorArray(dtype, total, infer_shape=False)

        labels = {each.name: array(each.dtype) for each in self._measured}
        predictions = {name: array(tf.float32) for name in self._step.prediction_names}
        zeros = self._step.layer_metrics.zeros()
        state = (0, tf.zeros([], tf.float64), zeros, labels, predictions)
        with self._step.store.in_closure():
            _, loss_sum, measured, *arrays = tf.while_loop(
                lambda step, *_: step < total, one, state
            )
        joined = [{name: x.concat() for name, x in some.items()} for some in arrays]
        return loss_sum, *joined, measured
