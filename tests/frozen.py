"""A config whose model cannot improve: it does not learn, and has no state that changes."""

import dataclasses

import keras

from configs import smoke


class Frozen(smoke.Smoke):
    """A linear model with learning rate 0."""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        row = keras.layers.Embedding(self.vocabulary, 4)(token)
        logits = keras.layers.Dense(1)(keras.layers.Concatenate()([numbers, row]))
        return keras.Model({"numbers": numbers, "token": token}, logits)

    def optimizer(self):
        return keras.optimizers.SGD(0.0)


def get_config():
    return dataclasses.replace(smoke.get_config(), task=Frozen())
