"""The smoke task with a learning rate that becomes 0: parameters then stay as they are."""

import dataclasses

import keras

import tfps
from configs import smoke

SETTLED = 200  # steps after which no parameter changes; workers may be some behind


@dataclasses.dataclass(frozen=True)
class Settled(smoke.Smoke):
    """Learns for a moment."""

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Its update is the gradient times the rate, and nothing else."""
        rates = keras.optimizers.schedules.PiecewiseConstantDecay([SETTLED // 2], [0.1, 0.0])
        return keras.optimizers.SGD(rates)


def get_config() -> tfps.Experiment:
    """As the smoke experiment."""
    return dataclasses.replace(smoke.get_config(), task=Settled())
