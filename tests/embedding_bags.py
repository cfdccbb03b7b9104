"""Bags of ids with weights, and how much each row of a table counts in them."""

import numpy as np
import tensorflow as tf

COMBINERS = ("sum", "mean", "sqrtn")
ROWS, DIM, WIDTH, RATE = 12, 3, 4, 0.1
WORDS = (b"red", b"green", b"blue", b"", "grün".encode())


def ragged(values, dtype=tf.int64):
    return tf.ragged.constant(values, dtype, row_splits_dtype=tf.int64)


def coefficients(bags, weights, combiner):
    """What each row of the table counts in each bag, [bags, ROWS], written out."""
    result = np.zeros((len(bags), ROWS))
    for bag, (ids, own) in enumerate(zip(bags, weights, strict=True)):
        kept = [(i, w) for i, w in zip(ids, own, strict=True) if combiner == "sum" or w > 0]
        norm = {
            "sum": 1.0,
            "mean": sum(w for _, w in kept),
            "sqrtn": np.sqrt(sum(w * w for _, w in kept)),
        }[combiner]
        for i, w in kept:
            result[bag, i] += w / norm
    return result


def ones(bags):
    return [[1.0] * len(bag) for bag in bags]


BAGS = [[3, 1, 3], [], [0], [11, 0, 5, 5], []]
WEIGHTS = [[0.5, 2.0, 1.0], [], [-1.0], [1.0, 0.0, 0.25, 3.0], []]
PADDED = tf.constant([bag + [-1] * (WIDTH - len(bag)) for bag in BAGS], tf.int64)
PADDED_WEIGHTS = tf.constant([w + [9.0] * (WIDTH - len(w)) for w in WEIGHTS])

# The same bags as layers take them, with -1 for padding: ids, weights and mask.
FORMS = {
    "ragged": (ragged(BAGS), ragged(WEIGHTS, tf.float32), None),
    "padded": (PADDED, PADDED_WEIGHTS, None),
    "masked": (tf.maximum(PADDED, 0), PADDED_WEIGHTS, PADDED >= 0),
    "int32": (tf.cast(PADDED, tf.int32), PADDED_WEIGHTS, None),
    "ragged with padding": (
        ragged([[-1, *bag] for bag in BAGS]),
        ragged([[7.0, *w] for w in WEIGHTS], tf.float32),
        None,
    ),
}
