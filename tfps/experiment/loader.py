"""Loads an experiment from a config: a Python file or module with `get_config()`."""

from tfps import python_config
from tfps.experiment.experiment import Experiment


def load(path: str) -> Experiment:
    """Loads a config and calls its `get_config()`.

    Args:
        path: As of `--config`: see `python_config.load`.

    Returns:
        The experiment.

    Raises:
        UserError: If there is no such config, it has no `get_config`, it raises, or it returns
            something else.
    """
    return python_config.load(path, "--config", "get_config", Experiment)
