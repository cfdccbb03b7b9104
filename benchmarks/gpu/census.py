"""A tfps config: configs/census.py at a precision that is a field."""

import dataclasses

from benchmarks.gpu.precision import PreciseTask
from configs.census import Census
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class PreciseCensus(PreciseTask, Census):
    """Census's features and model."""


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("gpu_census", PreciseCensus(), train=Train(batch_size=128, epochs=4))
