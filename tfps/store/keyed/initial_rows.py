"""Initial rows of keys: they depend on table, key and seed alone."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.layers import id_check
from tfps.layers.key_options import MEAN, NO_ROW, TRAINED

_DRAWN_BITS = 23  # so that float32 holds the middle between two numbers: none is rounded to 1
_AT_ONCE = 64  # values of the widest registers there are, four times unrolled
_CUT = 2.0  # standard deviations, where TruncatedNormal ends
_ODD = np.uint64(0xD1342543DE82EF95)  # by which the numbers of a row's values lie apart
_BELOW_CUT = 0.022750131948179195  # of a normal distribution


def mean_of(initializer: keras.initializers.Initializer) -> float:
    """The mean of what an initializer draws."""
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.RandomUniform):
        return float(config["minval"] + config["maxval"]) / 2
    if isinstance(initializer, keras.initializers.Ones):
        return 1.0
    return float(config.get("mean", config.get("value", 0.0)))


def unknown_rows(tables: Sequence[Table]) -> np.ndarray:
    """What tables give keys without a row, `[tables, dim]` float32."""
    rows = np.zeros([len(tables), tables[0].dim], np.float32)
    for row, table in zip(rows, tables, strict=True):
        unknown = table.keys and table.keys.unknown
        if unknown == MEAN:
            row[:] = mean_of(table.initializer)
        elif unknown == TRAINED:
            row[:] = NO_ROW
    return rows


class InitialRows:
    """Draws rows of a group's tables, the same on any number of ps and in any order."""

    def __init__(self, tables: Sequence[Table], seed: int):
        self._dim = tables[0].dim
        self._stream = (seed * id_check.GOLDEN) % (1 << 64)
        self._initializers: list[keras.initializers.Initializer] = []
        configs: list[str] = []
        which = []
        for table in tables:
            config = {k: v for k, v in table.initializer.get_config().items() if k != "seed"}
            name = f"{type(table.initializer).__name__} {config}"
            if name not in configs:
                configs.append(name)
                self._initializers.append(table.initializer)
            which.append(configs.index(name))
        self._which = which

    def draw(self, hashes: tf.Tensor, tables: tf.Tensor) -> tf.Tensor:
        """The rows of keys, `[n, dim]` float32.

        Args:
            hashes: Of the keys, `[n]` int64.
            tables: Of the keys, `[n]` int32.
        """
        count = tf.size(hashes)
        # TensorFlow's kernels draw several values at once, and what is left over one by one, which
        # gives some another last bit: so nothing is left over, however many keys come at once.
        hashes, tables = (tf.pad(each, [[0, -count % _AT_ONCE]]) for each in (hashes, tables))
        numbers = tf.constant(np.arange(1, self._dim + 1, dtype=np.uint64) * _ODD)
        bits = tf.bitwise.bitwise_xor(
            tf.bitcast(hashes, tf.uint64), tf.constant(self._stream, tf.uint64)
        )
        mixed = id_check.mix(bits[:, tf.newaxis] + numbers)
        high = tf.bitwise.right_shift(mixed, tf.constant(64 - _DRAWN_BITS, tf.uint64))
        # Neither 0 nor 1.
        uniform = (tf.cast(tf.cast(high, tf.int32), tf.float32) + 0.5) / (1 << _DRAWN_BITS)
        drawn = [_drawn(initializer, uniform) for initializer in self._initializers]
        if len(drawn) == 1:
            return drawn[0][:count]
        which = tf.gather(tf.constant(self._which), tables)
        return tf.gather(tf.stack(drawn, 1), which, batch_dims=1)[:count]


def _drawn(initializer: keras.initializers.Initializer, uniform: tf.Tensor) -> tf.Tensor:
    """Values of an initializer's distribution, from values between 0 and 1."""
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.RandomUniform):
        return config["minval"] + (config["maxval"] - config["minval"]) * uniform
    if isinstance(initializer, keras.initializers.TruncatedNormal):
        inside = _BELOW_CUT + uniform * (1 - 2 * _BELOW_CUT)
        return config["mean"] + config["stddev"] * tf.math.ndtri(inside)
    if isinstance(initializer, keras.initializers.RandomNormal):
        return config["mean"] + config["stddev"] * tf.math.ndtri(uniform)
    return tf.fill(tf.shape(uniform), np.float32(mean_of(initializer)))
