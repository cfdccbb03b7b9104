"""A tfps config: configs/criteo.py at a precision that is a field."""

import dataclasses

from benchmarks.gpu.precision import PreciseTask
from configs.criteo import Criteo
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class PreciseCriteo(PreciseTask, Criteo):
    """Criteo's features and model."""


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("gpu_criteo", PreciseCriteo(), train=Train(batch_size=512, epochs=1))
