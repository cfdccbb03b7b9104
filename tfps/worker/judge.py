"""Counts in a closure what the model predicts of batches before it learns them."""

from collections.abc import Mapping

import tensorflow as tf

from tfps.evaluation.progressive import BINS, LAST_LOGIT, WIDTH
from tfps.model.stateless_model import Labels

_LEAST = 1e-7  # distance of a prediction from 0 and 1 in the log loss, as in Keras's


class Judge:
    """Compares predictions of yes or no with labels, given by `judged_labels`."""

    def __init__(self, predictions: Mapping[str, str]):
        self.labels, self._predictions = tuple(predictions), tuple(predictions.values())
        self.shape = (len(self.labels), WIDTH)

    def scores(self, predictions: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """A batch's predictions of the labels, `[labels, records]` float32."""
        return tf.stack([tf.reshape(predictions[name], [-1]) for name in self._predictions])

    def counts(self, scores: tf.Tensor, labels: Labels) -> tf.Tensor:
        """A batch's counts, `[labels, WIDTH]` float32, as `Judged` has them."""
        truth = tf.stack(
            [tf.cast(tf.reshape(labels[name], [-1]), tf.float32) for name in self.labels]
        )
        is_positive = tf.equal(truth, 1.0)
        is_fit = (is_positive | tf.equal(truth, 0.0)) & (scores >= 0.0) & (scores <= 1.0)
        inside = tf.clip_by_value(scores, _LEAST, 1.0 - _LEAST)
        above, below = tf.math.log(inside), tf.math.log1p(-inside)
        logit = (above - below + LAST_LOGIT) * (BINS / (2 * LAST_LOGIT))
        place = tf.clip_by_value(tf.cast(logit, tf.int32), 0, BINS - 1)
        place += BINS * tf.cast(is_positive, tf.int32)
        of_label = 2 * BINS * tf.range(len(self.labels))[:, tf.newaxis]
        nowhere = 2 * BINS * len(self.labels)  # beyond the last, where nothing is counted
        places = tf.where(is_fit, of_label + place, nowhere)
        counted = tf.math.bincount(
            tf.reshape(places, [-1]), minlength=nowhere, maxlength=nowhere, dtype=tf.float32
        )
        losses = -tf.where(is_positive, above, below)
        sums = [tf.reduce_sum(tf.where(is_fit, each, 0.0), 1) for each in (scores, losses)]
        unfit = tf.reduce_sum(tf.cast(~is_fit, tf.float32), 1)
        return tf.concat(
            [
                tf.reshape(counted, [len(self.labels), 2 * BINS]),
                tf.stack([unfit, *sums], 1),
            ],
            1,
        )
