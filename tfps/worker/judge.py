"""Counts in a closure what the model predicts of batches before it learns them."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.evaluation.progressive import BINS, LAST_LOGIT, WIDTH
from tfps.model.stateless_model import Labels
from tfps.worker.local_copy import LocalRows

_LEAST = 1e-7  # distance of a prediction from 0 and 1 in the log loss, as in Keras's
_UNFIT = 2 * BINS  # where a label's records lie that are no yes or no, in `Judged`


class Judge:
    """Compares predictions of yes or no with labels, given by `judged_labels`."""

    def __init__(self, predictions: Mapping[str, str]):
        self.labels, self._predictions = tuple(predictions), tuple(predictions.values())

    def scores(self, predictions: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """A batch's predictions of the labels, `[labels, records]` float32."""
        return tf.stack([tf.reshape(predictions[name], [-1]) for name in self._predictions])

    def begin(self) -> "Counts":
        """Counts of no records yet, in a closure."""
        return Counts(self.labels)


class Counts:
    """Counts of a closure's records.

    With few operations: each costs more than its arithmetic, and this is part of every step.
    """

    def __init__(self, labels: Sequence[str]):
        self._labels = labels
        self._shape = len(labels), WIDTH
        self._bins = LocalRows(tf.zeros([len(labels) * WIDTH], tf.float64))
        self._sums = LocalRows(tf.zeros([2, len(labels)], tf.float64))

    def add(self, scores: tf.Tensor, labels: Labels) -> None:
        """Counts a batch by the output of `Judge.scores`."""
        truth = tf.stack([tf.cast(tf.reshape(labels[x], [-1]), tf.float32) for x in self._labels])
        is_positive = tf.equal(truth, 1.0)
        is_fit = (is_positive | tf.equal(truth, 0.0)) & (scores >= 0.0) & (scores <= 1.0)
        inside = tf.where(is_fit, tf.clip_by_value(scores, _LEAST, 1.0 - _LEAST), 0.5)
        above, below = tf.math.log(inside), tf.math.log1p(-inside)
        logit = (above - below) * (BINS / (2 * LAST_LOGIT)) + BINS / 2
        place = tf.cast(tf.clip_by_value(logit, 0.0, BINS - 1.0), tf.int32)
        place = tf.where(is_positive, place + BINS, place)
        place = tf.where(is_fit, place, _UNFIT)
        if len(self._labels) > 1:
            place += WIDTH * tf.range(len(self._labels))[:, tf.newaxis]
        self._bins.count(place)
        both = tf.stack([inside, tf.where(is_positive, above, below)])
        self._sums.add(tf.cast(tf.reduce_sum(both, 2), tf.float64))

    def all(self) -> tf.Tensor:
        """The counts, `[labels * WIDTH]` float64, as `Judged` has them."""
        bins = tf.reshape(self._bins.all(), self._shape)
        predicted, gains = tf.unstack(self._sums.all())
        sums = tf.stack([predicted, -gains], 1)
        return tf.reshape(tf.concat([bins[:, : _UNFIT + 1], sums], 1), [-1])
