"""Small models, and tasks of them."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.experiment.task import Task

LABELS = {"label": tf.zeros([6])}
FEATURES = (Feature("id", "int64", (), 10), Feature("x", "float32", (3,)))


@dataclasses.dataclass(frozen=True)
class TaskOf(Task):
    build: object
    inputs: tuple = FEATURES

    def features(self):
        return self.inputs

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        return self.build()

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(0.1)


def functional(embedding=keras.layers.Embedding, rows=10, **options):
    def build():
        id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((3,), name="x")
        row = embedding(rows, 4, name="table", **options)(id_in)
        return keras.Model([x, id_in], keras.layers.Dense(1)(keras.layers.Concatenate()([row, x])))

    return build


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(10, 4)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs, training=False):
        self.add_loss(0.5 * keras.ops.mean(inputs["x"]))
        return self.dense(keras.ops.concatenate([self.table(inputs["id"]), inputs["x"]], axis=-1))


class Unloadable(keras.layers.Layer):
    """A layer of one's own that Keras cannot make again: it does not say what it was made with."""

    def __init__(self, factors):
        super().__init__()
        self.factors = keras.ops.array(factors)

    def call(self, x):
        return x * self.factors


def frozen_afterwards():
    model = functional()()
    model.trainable = False
    return model


def features(size=6):
    return {"id": tf.range(size, dtype=tf.int64), "x": tf.ones([size, 3])}


def run(model, rows, inputs=None):
    sizes = [v.shape for v in model.dense]
    values = np.split(model.initial_dense, np.cumsum([int(np.prod(s)) for s in sizes])[:-1])
    dense = [tf.constant(v.reshape(s)) for v, s in zip(values, sizes, strict=True)]
    seed = tf.zeros([2], tf.int64)
    return model.forward(dense, [], rows, seed, inputs or features(), LABELS, training=True)


@pytest.mark.parametrize("build", [functional(), Subclassed])
def dense_model(*layers, inputs=3, **options):
    """A builder of a functional model of the numbers alone."""

    def build():
        x = hidden = keras.Input((inputs,), name="x")
        for layer in layers:
            hidden = layer()(hidden)
        return keras.Model(x, keras.layers.Dense(1, **options)(hidden))

    return build
