"""The config of a model that trains, but fails where it is to predict."""

import os

import keras
import tensorflow as tf

import tfps

MENDED = "TFPS_TEST_MENDED"
FEATURES, LABEL = (tfps.Feature("x", "float32", (3,)),), tfps.Feature("y", "float32")


class Strict(keras.layers.Layer):
    """Takes, when it predicts, only what is below 0.5."""

    def call(self, x, training=False):
        if not training and not os.environ.get(MENDED):
            tf.debugging.assert_less(x, 0.5, message="too large to predict")
        return x


def build() -> keras.Model:
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(1)(Strict()(x)))
    model.compile("sgd", "mse")
    return model


def get_config() -> tfps.Experiment:
    return tfps.Experiment("strict", tfps.task_of(build, LABEL, FEATURES))
