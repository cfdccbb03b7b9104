"""Loads an experiment from a config: a Python file or module with `get_config()`."""

from tfps import python_config
from tfps.experiment.experiment import Experiment


def load(path: str) -> Experiment:
    """Loads a config and calls its `get_config()`."""
    return python_config.load(path, "--config", "get_config", Experiment)
