"""What a replica runs at a stretch: its share of a lease."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.allreduce.step import ReplicaStep
from tfps.data.batches import read_batches
from tfps.data.record_source import PackedSource
from tfps.experiment.experiment import Experiment
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.model.draws import draw_of
from tfps.worker.loop import note_failure

LANE = 0  # of the one lease that is in flight
_ENDLESS = 1 << 62

State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class TrainedRounds(NamedTuple):
    """What came of a lease.

    Attributes:
        bad_round: The round, from 0, whose loss was not finite; -1 for none.
        began: When, in seconds since 1970 on this machine's clock.
    """

    rounds: int
    loss_sum: float
    bad_round: int
    began: float
    seconds: float

    @staticmethod
    def pack(
        rounds: tf.Tensor, loss_sum: tf.Tensor, bad_round: tf.Tensor, began: tf.Tensor
    ) -> tf.Tensor:
        """In a closure: the rounds as one tensor, `[5]` float64.

        Args:
            rounds: As the attribute, scalar int64.
            loss_sum: As the attribute, scalar float64.
            bad_round: As the attribute, scalar int64.
            began: As the attribute, scalar float64.
        """
        with tf.control_dependencies([loss_sum]):
            seconds = tf.timestamp() - began
        rounds, bad_round = (tf.cast(number, tf.float64) for number in (rounds, bad_round))
        return tf.stack([rounds, loss_sum, bad_round, began, seconds])

    @classmethod
    def unpack(cls, numbers: np.ndarray) -> "TrainedRounds":
        """The rounds of what `pack` made of them, as fetched."""
        rounds, loss_sum, bad_round, began, seconds = numbers.tolist()
        return cls(int(rounds), loss_sum, int(bad_round), began, seconds)


class ReplicaClosures:
    """The function that trains a share of a lease, traced once.

    Attributes:
        train: (source, [begin, end, rounds, seed] int64) -> [5] float64, of which
            `TrainedRounds.unpack` makes the rounds. Trains a shard's batches from number `begin` up
            to `end`, followed by batches without records up to the number of rounds.
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
        done, loss_sum, bad = tf.while_loop(more, train, state)
        return TrainedRounds.pack(done, loss_sum, bad, began)
