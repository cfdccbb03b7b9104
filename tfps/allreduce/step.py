"""One round: every replica computes on its own batch, all apply the same update."""

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.allreduce.group import ReplicaGroup
from tfps.data.record_source import PackedSource, read_batches
from tfps.experiment.experiment import Experiment
from tfps.leases.lease import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.model.stateless_model import Features, Labels
from tfps.model.variables import draw_of
from tfps.profiling import scopes
from tfps.store.group_layout import AskedIds
from tfps.store.messages import Gradients, Pulled
from tfps.worker.loop import note_failure
from tfps.worker.step import Step, batch_records

LANE = 0  # of the one lease that is in flight
_ENDLESS = 1 << 62
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class Round(NamedTuple):
    """Mean loss of a round, the model's own included, and its records; scalar float32."""

    loss: tf.Tensor
    records: tf.Tensor


class ReplicaStep:
    """Computes on this replica's batch, and updates its copy of the parameters as all others do.

    Every gradient is a mean over the records of all batches together, as if they were one. All
    replicas add the same numbers in the same order: their parameters stay equal bit for bit.
    """

    def __init__(self, step: Step, group: ReplicaGroup):
        self._step = step
        self._store = step.store
        self._group = group

    def judging(self) -> contextlib.AbstractContextManager[Callable[[], tf.Tensor]]:
        """As `Step.judging`, of this replica's batches."""
        return self._step.judging()

    def train(self, features: Features, labels: Labels, seed: tf.Tensor) -> Round:
        """Trains one batch on every replica.

        Features and labels are `[batch, *shape]` by name. A batch may be empty, but not on all
        replicas. `seed`, `[2]` int64, differs between replicas; random layers draw from it.
        """
        batch = self._step.pull(features, labels)
        sizes = self._group.gather(_distinct(batch.pulled), on_host=True)
        loss, mine = self._step.gradients(batch, seed)
        weight = tf.cast(batch_records(features, labels), tf.float32)
        with tf.name_scope(scopes.PUSH):
            records, loss, dense, state = self._mean(loss, mine, weight)
            with tf.control_dependencies([records] if self._group.is_ordered else []):
                pulled, rows = self._exchanged(mine, weight, sizes)
            rows = [
                group.gradients.scaled(gradient, 1.0 / records)
                for group, gradient in zip(self._store.groups, rows, strict=True)
            ]
            self._store.push(pulled, dense, rows, state)
        return Round(loss, records)

    def _mean(
        self, loss: tf.Tensor, mine: Gradients, weight: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """How many records there are, and the means over them: loss, dense gradients, state."""
        layout, before = self._store.layout, list(mine.pulled.state)
        change = self._store.change_of_state(before, mine.state)
        flat = [tf.reshape(gradient, [-1]) for gradient in mine.dense]
        flat += [loss[tf.newaxis], *([] if change is None else [change])]
        # What a batch without records gave is not finite.
        weighted = tf.math.multiply_no_nan(tf.concat(flat, 0), weight)
        sums = self._group.sum(tf.concat([weight[tf.newaxis], weighted], 0))
        records, means = sums[0], sums[1:] / sums[0]
        dense, loss, changed = tf.split(means, [layout.dense.total, 1, -1])
        after = before if change is None else layout.state.add(before, changed)
        return records, loss[0], layout.dense.unflatten(dense), after

    def _exchanged(
        self, mine: Gradients, weight: tf.Tensor, sizes: tf.Tensor
    ) -> tuple[Pulled, list[tf.Tensor]]:
        """Touched rows of all replicas by group, which may repeat, and gradients `[n, width]`."""
        groups, pulled = self._store.groups, mine.pulled.groups
        if not groups:
            return mine.pulled, []
        lines, packed, most = [], [], tf.unstack(tf.reduce_max(sizes, 0), len(groups))
        for group, rows, gradient, longest in zip(groups, pulled, mine.rows, most, strict=True):
            summed = group.gradients.scaled(group.sum_by_row(rows, gradient), weight)
            lines.append(tf.concat([_words(rows.ids), summed], 1))
            missing = longest - tf.size(rows.ids)
            packed.append(tf.reshape(tf.pad(lines[-1], [[0, missing], [0, 0]]), [-1]))
        gathered = self._group.gather(tf.concat(packed, 0))
        found, gradients, begin = [], [], 0
        for k, group in enumerate(groups):
            width = lines[k].shape[1]
            end = begin + most[k] * width
            block = tf.reshape(gathered[:, begin:end], [self._group.size, most[k], width])
            filled = tf.concat([block[r, : sizes[r, k]] for r in range(self._group.size)], 0)
            values = group.gradients.width
            words, gradient = tf.split(filled, [width - values, values], 1)
            found.append(group.find(AskedIds(_ids(words, group.layout.id_dtype))))
            gradients.append(gradient)
            begin = end
        return mine.pulled._replace(groups=found), gradients


def _distinct(pulled: Pulled) -> tf.Tensor:
    """Number of distinct rows by group, `[groups]` int32."""
    return tf.stack([tf.size(rows.ids) for rows in pulled.groups] or [0])


def _words(ids: tf.Tensor) -> tf.Tensor:
    """The bits of ids `[n]` as one or two numbers each, to travel with a row, `[n, 1 or 2]`."""
    return tf.reshape(tf.bitcast(ids, tf.float32), [-1, ids.dtype.size // 4])


def _ids(words: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The ids `[n]` that `_words` made words of."""
    return tf.bitcast(words if dtype.size == 8 else words[:, 0], dtype)


class TrainedRounds(NamedTuple):
    """Result of a lease; `bad_round` counts from 0, -1 for none; `began` in seconds since 1970."""

    rounds: int
    loss_sum: float
    bad_round: int
    began: float
    seconds: float
    judged: np.ndarray  # of this replica's batches, for `Judged.plus`

    @staticmethod
    def pack(
        rounds: tf.Tensor,
        loss_sum: tf.Tensor,
        bad_round: tf.Tensor,
        began: tf.Tensor,
        judged: tf.Tensor,
    ) -> tf.Tensor:
        """In a closure: the rounds as one tensor, `[n]` float64."""
        with tf.control_dependencies([loss_sum]):
            seconds = tf.timestamp() - began
        rounds, bad_round = (tf.cast(number, tf.float64) for number in (rounds, bad_round))
        return tf.concat([tf.stack([rounds, loss_sum, bad_round, began, seconds]), judged], 0)

    @classmethod
    def unpack(cls, numbers: np.ndarray) -> "TrainedRounds":
        """The rounds of what `pack` made of them, as fetched."""
        rounds, loss_sum, bad_round, began, seconds = numbers[:5].tolist()
        return cls(int(rounds), loss_sum, int(bad_round), began, seconds, numbers[5:])


class ReplicaClosures:
    """The function that trains a share of a lease, traced once.

    `train`: (source, [begin, end, rounds, seed] int64) -> [n] float64, for `TrainedRounds.unpack`.
    It trains a shard's batches from number `begin` up to `end`, followed by batches without records
    up to the number of rounds.
    """

    def __init__(
        self,
        experiment: Experiment,
        step: ReplicaStep,
        progress: LeaseProgress,
        locate: Callable[[tf.Tensor], tf.Tensor] = lambda path: path,
    ):
        self._batching = EpochOrder.batching(experiment)
        self._step = step
        self.progress = progress
        self._locate = locate
        self.train = tf.function(
            self._train,
            input_signature=[PackedSource.signature(), tf.TensorSpec([4], tf.int64)],
            autograph=False,
        )

    def _train(self, packed: PackedSource, share: tf.Tensor) -> tf.Tensor:
        began = tf.timestamp()
        begin, end, rounds, seed = tf.unstack(share)
        source = packed.unpack()
        source = source._replace(path=self._locate(source.path))
        batches = iter(read_batches(source, self._batching, seed, (begin, end), _ENDLESS))
        lane, worker = tf.constant(LANE, tf.int64), tf.constant(0, tf.int64)
        record = functools.partial(
            self.progress.advance, lane, self.progress.begin(lane, worker).number
        )

        def train(done: tf.Tensor, loss_sum: tf.Tensor, bad: tf.Tensor) -> State:
            features, labels = next(batches)
            trained = self._step.train(features, labels, draw_of(seed, begin + done))
            records = trained.records // self._batching.examples_per_record
            loss = tf.cast(trained.loss, tf.float64) * tf.cast(records, tf.float64)
            record(tf.stack([0.0, 1.0, 0.0, loss]))
            return done + 1, loss_sum + loss, note_failure(bad, done, loss)

        def more(done: tf.Tensor, _: tf.Tensor, bad: tf.Tensor) -> tf.Tensor:
            return (done < rounds) & (bad < 0)

        zero = tf.constant(0, tf.int64)
        state: State = (zero, tf.zeros([], tf.float64), tf.constant(-1, tf.int64))
        # Not unrolled: no iteration sends anything to another task, and it is traced soon.
        with self._step.judging() as judged:
            done, loss_sum, bad = tf.while_loop(more, train, state)
        with tf.control_dependencies([done]):
            counts = judged()
        return TrainedRounds.pack(done, loss_sum, bad, began, counts)
