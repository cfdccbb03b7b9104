"""Parameters and gradients are looked at after an epoch."""

import dataclasses
import io
import math

import numpy as np
import pytest

from configs.smoke import get_config
from tests.training_fixtures import dataset, inputs_of
from tfps.experiment.experiment import Data
from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.monitoring.events import ParametersMeasured
from trainer.chief.engine import spread
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay

TABLE = "token_table/embeddings"


def test_the_spread_of_values():
    found = spread(np.array([[3.0, -4.0], [np.nan, np.inf]], np.float32))
    assert (found.edges[0], found.edges[-1], len(found.edges)) == (-4.0, 3.0, 31)
    assert (sum(found.counts), found.counts[0], found.counts[-1]) == (2, 1, 1)
    assert (found.norm, found.left_out) == (5.0, 2)


def test_nothing_has_a_spread_too():
    assert sum(spread(np.zeros([0, 4])).counts) == 0


@pytest.mark.slow
def test_a_run_tells_of_its_parameters_every_second_epoch(tmp_path):
    data = str(dataset(tmp_path / "data", records=70).directory)
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment,
        data=Data(train=data),
        train=dataclasses.replace(experiment.train, epochs=5),
    )
    inputs = inputs_of(experiment, tmp_path / "job")
    display = ProgressDisplay(io.StringIO(), False)
    monitoring = Monitoring(histograms_every=2)
    run(inputs, WaitLimits(), Interruption(grace_seconds=0.0), display, monitoring)
    found = [
        event
        for event in recorder.read(JobDir(tmp_path / "job"))
        if isinstance(event, ParametersMeasured)
    ]
    assert [event.epoch for event in found] == [2, 4]
    assert found[0].steps * 2 == found[1].steps > 0
    dense = {"hidden/kernel", "hidden/bias", "logits/kernel", "logits/bias"}
    for event in found:
        assert {*dense, TABLE} <= set(event.parameters)
        assert event.parameters.keys() == event.gradients.keys()
        assert sum(event.parameters["hidden/kernel"].counts) == 8 * 8
        assert sum(event.parameters[TABLE].counts) == 20 * 4
        assert all(0 < each.norm < math.inf for each in event.parameters.values())
        assert event.gradients["logits/kernel"].norm > 0
        assert event.gradients[TABLE].norm > 0
