"""The smoke config behind a wide backbone that is not trained, and a trained BatchNorm."""

import dataclasses

import keras

from configs import smoke
from tfps.experiment.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class FrozenBackbone(smoke.Smoke):
    """As `Smoke`.

    Attributes:
        width: Of the backbone's two layers.
        backbone_seed: Of their values.
    """

    width: int = 1024
    backbone_seed: int = 1

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        layers = keras.layers
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        hidden = layers.BatchNormalization(name="statistics")(numbers)
        for number in range(2):
            values = keras.initializers.GlorotUniform(self.backbone_seed + number)
            hidden = layers.Dense(
                self.width,
                "tanh",
                kernel_initializer=values,
                trainable=False,
                name=f"deep_{number}",
            )(hidden)
            hidden = layers.BatchNormalization(trainable=False, name=f"normal_{number}")(hidden)
        row = layers.Embedding(self.vocabulary, self.dim)(token)
        hidden = layers.Dense(64, "relu")(layers.Concatenate()([hidden, row]))
        return keras.Model({"numbers": numbers, "token": token}, layers.Dense(1)(hidden))


def get_config() -> Experiment:
    """The experiment."""
    return dataclasses.replace(smoke.get_config(), task=FrozenBackbone())
