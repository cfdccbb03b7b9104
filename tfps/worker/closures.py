"""The closures that workers run: train a lease, evaluate a shard."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.barrier.barrier import Barrier
from tfps.barrier.member_state import TURN
from tfps.data.batches import read_batches, read_good_batches
from tfps.data.record_source import RecordSource, without_rewrites
from tfps.experiment.experiment import Experiment
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import REFUSED, Attempt, LeaseProgress
from tfps.model.draws import draw_of
from tfps.worker.barrier_loop import BarrierTraining
from tfps.worker.local_sgd import LocalTraining
from tfps.worker.prefetch import BatchPrefetcher, ReadBatch
from tfps.worker.step import Step, batch_records

State = tuple[Any, ...]


class Closures:
    """Functions to schedule, each traced once.

    Attributes:
        train: (source, [first, count, seed, place] int64) -> [attempts, steps, bad, loss_sum,
            bad_step, worker, began, seconds] float64: one tensor, since each that is fetched costs
            a call. Trains what is left of a lease, whose progress is at the place that
            `LeaseProgress.place` named; nothing where it is another lease's by now. `steps` are
            those of the lease, over all attempts, or -1 where another attempt holds it by now, or
            none; `bad` are the records of these steps that were in the source's gaps; `bad_step` is
            the first batch of the shard, from 0, whose loss was not finite, or -1; `worker` is the
            index of the worker, `began` the time on its clock (seconds since 1970) and `seconds`
            how long the closure ran. Where there may be bad records, a lease ends before the first
            batch that cannot be read.
        open: (source, first int64) -> records read, int64. Fetches the beginning of a lease, from
            its first record on, so that the worker's client of storage holds it already when the
            lease is trained. What goes wrong is left to the lease itself.
        evaluate: (source, count int64) -> (loss_sum, labels, predictions). Every record of a shard
            once, in order; `loss_sum` is the sum over records of the loss of their batch; labels
            and predictions are dicts by name.
        schema: Features and labels of a record.
    """

    def __init__(
        self,
        experiment: Experiment,
        step: Step,
        progress: LeaseProgress,
        prediction_names: Sequence[str],
        worker_index: Callable[[], tf.Tensor],
        barrier: Barrier | None = None,
        local: LocalTraining | None = None,
        unroll: int = 10,
        locate: Callable[[tf.Tensor], tf.Tensor] = lambda path: path,
    ):
        """Prepares the closures of an experiment.

        Args:
            experiment: The experiment.
            step: Trains or evaluates one batch.
            progress: Where a lease's progress is kept.
            prediction_names: Names of the task's predictions.
            worker_index: Called in a closure, gives the index of the worker that runs it.
            barrier: Where workers wait for each other; None where nobody does.
            local: Makes several steps between a pull and its push; None for one.
            unroll: Steps in one turn of a loop; each turn costs messages to every ps.
            locate: Gives the path from which a worker reads a shard.
        """
        self._batching = EpochOrder.batching(experiment)
        self.schema = self._batching.schema.all
        self._prediction_names = prediction_names
        self._worker_index = worker_index
        self._unroll = unroll
        self._locate = locate
        self._pipeline_depth = experiment.train.pipeline_depth
        self._may_be_bad = experiment.data.max_bad_records > 0
        self._step = step
        self._progress = progress
        may_repeat = experiment.mode.backup_workers > 0
        # Batches without records that may be read behind a lease.
        self._read_behind = 1 if barrier and may_repeat else self._pipeline_depth
        self._at_barrier = BarrierTraining(step, barrier, unroll, may_repeat) if barrier else None
        self._local = local
        loop = self._train_at_barrier if barrier else self._train
        if local:
            loop = self._train_locally
        source = RecordSource.signature()
        self.train = tf.function(
            loop,
            input_signature=[source, tf.TensorSpec([4], tf.int64)],
            autograph=False,
        )
        self.open = tf.function(
            self._open, input_signature=[source, tf.TensorSpec([], tf.int64)], autograph=False
        )
        self.evaluate = tf.function(
            self._evaluate, input_signature=[source, tf.TensorSpec([], tf.int64)], autograph=False
        )

    def _train(self, source: RecordSource, lease: tf.Tensor) -> tf.Tensor:
        start, worker = tf.timestamp(), self._worker_index()
        first, count, seed, place = tf.unstack(lease)
        attempt = self._progress.begin(place, worker)
        begun, end = self._left(first, count, attempt)
        read = self._reader(source, seed, begun, end)
        # Several steps are only begun with batches of which it is known that they can be read.
        unpulled = self._unroll if self._may_be_bad else 0
        ahead = BatchPrefetcher(read, self._step.pull, self._pipeline_depth, unpulled)
        held = self._progress.slot_of(place), attempt.number
        record = functools.partial(self._progress.advance, *held)

        def one(holds: tf.Tensor, *state: tf.Tensor) -> State:
            return holds, *self._turn(ahead, seed, record, state, self._may_be_bad)

        def several(_: tf.Tensor, *state: tf.Tensor) -> State:
            holds = self._progress.holds(*held)
            for _ in range(self._unroll):
                state = self._turn(ahead, seed, record, state, may_be_empty=False)
            return holds, *state

        def more_than(steps: int) -> Callable[..., tf.Tensor]:
            def more(holds: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
                step, _, bad_step, *batches = state
                left = holds & (step + steps <= end) & (bad_step < 0)
                return left & ahead.follow(batches, step, steps) if self._may_be_bad else left

            return more

        state = (begun, tf.zeros([4], tf.float64), tf.constant(-1, tf.int64), *ahead.tensors)
        state = tf.while_loop(more_than(self._unroll), several, (tf.constant(True), *state))
        _, _, unrecorded, bad_step, *_ = tf.while_loop(more_than(1), one, state)
        record(unrecorded)
        return self._result(*held, bad_step, worker, start)

    def _train_at_barrier(self, source: RecordSource, lease: tf.Tensor) -> tf.Tensor:
        assert self._at_barrier is not None
        start, worker = tf.timestamp(), self._worker_index()
        first, count, seed, place = tf.unstack(lease)
        token, steps = self._at_barrier.begin(place, worker)
        turn = token[TURN]
        batches = self._left(first, count, Attempt(turn, tf.zeros([], tf.int64)))

        def reader(begun: tf.Tensor) -> Callable[[], ReadBatch]:
            return self._reader(source, seed, begun, batches[1])

        draw = functools.partial(draw_of, seed)
        token, bad_step = self._at_barrier.train(token, steps, batches, reader, draw)
        slot = self._progress.slot_of(place)
        with tf.control_dependencies([token]):
            return self._result(slot, turn, bad_step, worker, start)

    def _train_locally(self, source: RecordSource, lease: tf.Tensor) -> tf.Tensor:
        assert self._local is not None
        start, worker = tf.timestamp(), self._worker_index()
        first, count, seed, place = tf.unstack(lease)
        attempt = self._progress.begin(place, worker)
        begun, end = self._left(first, count, attempt)
        read, draw = self._reader(source, seed, begun, end), functools.partial(draw_of, seed)
        held = self._progress.slot_of(place), attempt.number
        holds = functools.partial(self._progress.holds, *held)
        record = functools.partial(self._progress.advance, *held)
        bad_step = self._local.train(read, begun, end, draw, holds, record)
        with tf.control_dependencies([bad_step]):
            return self._result(*held, bad_step, worker, start)

    def _left(
        self, first: tf.Tensor, count: tf.Tensor, attempt: Attempt
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Numbers in the shard of a lease's first batch to be trained and of the one behind it."""
        end = -(-(first + count) // self._batching.size)
        begun = first // self._batching.size + attempt.steps
        return tf.where(tf.equal(attempt.number, REFUSED), end, begun), end

    def _result(
        self,
        slot: tf.Tensor,
        attempt: tf.Tensor,
        bad_step: tf.Tensor,
        worker: tf.Tensor,
        start: tf.Tensor,
    ) -> tf.Tensor:
        """What the closure returns that has trained a lease."""
        trained = self._progress.result(slot, attempt)
        with tf.control_dependencies([trained]):
            seconds = tf.timestamp() - start
        numbers = [tf.cast(number, tf.float64) for number in (bad_step, worker)]
        return tf.concat([trained, tf.stack([*numbers, start, seconds])], 0)

    def _turn(
        self,
        ahead: BatchPrefetcher,
        seed: tf.Tensor,
        record: Callable[[tf.Tensor], None],
        state: State,
        may_be_empty: bool,
    ) -> State:
        """One step of a lease: the state of its loop, before and after."""
        step, unrecorded, bad_step, *held = state
        due, newest, held = ahead.turn(held)
        # What the newest pull brought was read after the pushes of the step before.
        with tf.control_dependencies(newest.batch.arrived()):
            pushed = tf.identity(unrecorded)
        record(pushed)
        records, draw = batch_records(due.labels), draw_of(seed, step)

        def train() -> tf.Tensor:
            return self._step.train(due.batch, draw)

        loss = tf.cond(records > 0, train, lambda: tf.zeros([])) if may_be_empty else train()
        loss = tf.cast(loss, tf.float64)
        bad = 0.0 if due.bad is None else tf.cast(due.bad, tf.float64)
        trained = tf.stack([0.0, 1.0, bad, loss * tf.cast(records, tf.float64)])
        failed = (bad_step < 0) & ~tf.math.is_finite(loss)
        return step + 1, trained, tf.where(failed, step, bad_step), *held

    def _reader(
        self, source: RecordSource, seed: tf.Tensor, begun: tf.Tensor, end: tf.Tensor
    ) -> Callable[[], ReadBatch]:
        """Reads what is left of a lease; behind it, batches without records to be pulled ahead."""
        source = source._replace(path=self._locate(source.path))
        order = self._batching, seed, (begun, end)
        if not self._may_be_bad:
            good = iter(read_batches(source, *order, self._read_behind))
            return lambda: ReadBatch(*next(good))
        readable = iter(read_good_batches(source, *order))

        def read() -> ReadBatch:
            number, (bad, features, labels) = next(readable)
            return ReadBatch(features, labels, number, bad)

        return read

    def _open(self, source: RecordSource, first: tf.Tensor) -> tf.Tensor:
        source = source._replace(path=self._locate(source.path))
        block = max(1, self._batching.block) * self._batching.size
        _, offset = source.known(first // block * block)
        # A failure uses up the number, so that it comes once.
        numbered = tf.data.Dataset.zip((tf.data.Dataset.range(1), source.from_byte(offset)))
        read = without_rewrites(numbered).ignore_errors()
        return read.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

    def _evaluate(self, source: RecordSource, count: tf.Tensor) -> tuple[tf.Tensor, ...]:
        total = tf.cast(-(-count // self._batching.size), tf.int32)
        source = source._replace(path=self._locate(source.path))
        iterator = iter(read_batches(source, self._batching._replace(block=0)))

        def one(step: tf.Tensor, loss_sum: tf.Tensor, *arrays: dict[str, tf.TensorArray]) -> State:
            features, labels = next(iterator)
            loss, predictions = self._step.predict(features, labels)
            loss_sum += tf.cast(loss, tf.float64) * tf.cast(batch_records(labels), tf.float64)
            written = [
                {name: array.write(step, values[name]) for name, array in some.items()}
                for some, values in zip(arrays, (labels, predictions), strict=True)
            ]
            return step + 1, loss_sum, *written

        def array(dtype: Any) -> tf.TensorArray:
            return tf.TensorArray(dtype, total, infer_shape=False)

        labels = {label.name: array(label.dtype) for label in self._batching.schema.labels}
        predictions = {name: array(tf.float32) for name in self._prediction_names}
        state = (0, tf.zeros([], tf.float64), labels, predictions)
        _, loss_sum, *arrays = tf.while_loop(lambda step, *_: step < total, one, state)
        return loss_sum, *({name: x.concat() for name, x in some.items()} for some in arrays)
