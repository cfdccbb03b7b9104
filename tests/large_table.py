"""A config whose table takes 6 GiB, and what a step changes of it is what it has pulled."""

import dataclasses

import keras

from configs import smoke


@dataclasses.dataclass(frozen=True)
class LargeTable(smoke.Smoke):
    """The smoke model with a large table, trained without slots."""

    vocabulary: int = 3 << 23
    dim: int = 64

    def optimizer(self):
        return keras.optimizers.SGD(0.1)


def get_config():
    experiment = smoke.get_config()
    train = dataclasses.replace(experiment.train, checkpoint_in_background=False, epochs=1)
    return dataclasses.replace(experiment, task=LargeTable(), train=train)
