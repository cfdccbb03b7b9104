"""What a replica runs at a stretch: its part of a lease."""

import functools
from collections.abc import Callable

import tensorflow as tf

from tfps.allreduce.step import ReplicaStep
from tfps.data.batches import read_batches
from tfps.data.record_source import RecordSource
from tfps.experiment.experiment import Experiment
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.model.draws import draw_of

SLOT = 0  # of the one lease that is in progress
_ENDLESS = 1 << 62

State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class ReplicaClosures:
    """The function that trains a part of a lease, traced once.

    Attributes:
        train: (source, [begin, end, rounds, seed] int64) -> [rounds, loss_sum, bad_round, began,
            seconds] float64. Trains a shard's batches from number `begin` up to `end`, followed by
            batches without records up to the number of rounds. `rounds` is how many were trained,
            `loss_sum` the sum over all replicas' records of the loss of their round, `bad_round`
            the round, from 0, whose loss was not finite, or -1; `began` is the time on this
            machine's clock (seconds since 1970), `seconds` how long it ran.
        progress: How far the lease has come.
    """

    def __init__(
        self,
        experiment: Experiment,
        step: ReplicaStep,
        progress: LeaseProgress,
        locate: Callable[[tf.Tensor], tf.Tensor] = lambda path: path,
    ):
        """Prepares the closure of an experiment.

        Args:
            experiment: The experiment.
            step: Trains a round.
            progress: Where the lease's progress is kept, for this process to show.
            locate: Gives the path from which a replica reads a shard.
        """
        self._batching = EpochOrder.batching(experiment)
        self._step = step
        self.progress = progress
        self._locate = locate
        self.train = tf.function(
            self._train,
            input_signature=[RecordSource.signature(), tf.TensorSpec([4], tf.int64)],
            autograph=False,
        )

    def _train(self, source: RecordSource, part: tf.Tensor) -> tf.Tensor:
        began = tf.timestamp()
        begin, end, rounds, seed = tf.unstack(part)
        source = source._replace(path=self._locate(source.path))
        batches = iter(read_batches(source, self._batching, seed, (begin, end), _ENDLESS))
        slot, worker = tf.constant(SLOT, tf.int64), tf.constant(0, tf.int64)
        record = functools.partial(
            self.progress.advance, slot, self.progress.begin(slot, worker).number
        )

        def turn(done: tf.Tensor, loss_sum: tf.Tensor, bad: tf.Tensor) -> State:
            features, labels = next(batches)
            trained = self._step.train(features, labels, draw_of(seed, begin + done))
            loss = tf.cast(trained.loss, tf.float64) * tf.cast(trained.records, tf.float64)
            record(tf.stack([0.0, 1.0, 0.0, loss]))
            failed = (bad < 0) & ~tf.math.is_finite(loss)
            return done + 1, loss_sum + loss, tf.where(failed, done, bad)

        def more(done: tf.Tensor, _: tf.Tensor, bad: tf.Tensor) -> tf.Tensor:
            return (done < rounds) & (bad < 0)

        zero = tf.constant(0, tf.int64)
        state: State = (zero, tf.zeros([], tf.float64), tf.constant(-1, tf.int64))
        # Not unrolled: nothing in it is sent to another task for every turn, and it is traced soon.
        done, loss_sum, bad = tf.while_loop(more, turn, state)
        with tf.control_dependencies([loss_sum]):
            seconds = tf.timestamp() - began
        done, bad = (tf.cast(number, tf.float64) for number in (done, bad))
        return tf.stack([done, loss_sum, bad, began, seconds])
