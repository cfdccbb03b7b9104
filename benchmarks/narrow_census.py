"""A tfps config: the model of configs/census.py with narrower rows."""

import tfps
from benchmarks.narrow_rows import NarrowCensus


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    return tfps.Experiment(
        "census_narrow", NarrowCensus(), train=tfps.Train(batch_size=128, epochs=10)
    )
