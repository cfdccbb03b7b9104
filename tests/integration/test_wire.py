"""What a real cluster sends, held against what it must send; and what its ps hold."""

import json
import pathlib
import re
from typing import Any

import pytest
from cluster_process import Program

from configs.criteo import get_config
from tests import frozen_backbone
from tfps.experiment.experiment import Experiment
from trainer.datasets.generation import generate

pytestmark = pytest.mark.slow
TOLERANCE = 0.10  # above what must be sent: TensorFlow's own bytes per tensor and step


def measured_by_cluster(
    directory: pathlib.Path, config: str, experiment: Experiment
) -> dict[str, Any]:
    """What one worker and two ps send, with either dtype on the wire."""
    data = directory / "data"
    generate(experiment, str(data), records=8192, shards=4, seed=0, signal_seed=0)
    own = ["--workers=1", "--ps=2", "--module=tests.integration.measure_wire"]
    tasks = [f"--config={config}", f"--data={data}", f"--job_dir={directory / 'job'}"]
    with Program(*own, "--", *tasks, module="cloud.local", loads=True) as program:
        assert program.finish() == 0, program.text
    [line] = [line for line in program.lines if '{"wire"' in line]
    found: dict[str, Any] = json.loads(re.sub(r"^\[chief\] ", "", line))
    return found


@pytest.fixture(name="measured", scope="module")
def measured_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a DLRM in batches of 512."""
    return measured_by_cluster(tmp_path_factory.mktemp("wire"), "configs/criteo.py", get_config())


def test_what_no_step_changes_is_sent_once(tmp_path: pathlib.Path) -> None:
    """The worker's copy is there before it is measured; the plan counts it apart."""
    config = "tests/frozen_backbone.py"
    found = measured_by_cluster(tmp_path, config, frozen_backbone.get_config())["wire"]["float32"]
    of_step, limit = found["bytes"] / found["trained_steps"], found["limit"] / found["steps"]
    assert 1.0 <= of_step / limit <= 1.0 + TOLERANCE
    assert found["fixed"] > 4e6
    assert of_step < found["fixed"] / 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_sends_what_it_must_and_no_more(measured: dict[str, Any], dtype: str) -> None:
    """Bytes of the connections between the worker and the ps over 12 steps."""
    wire = measured["wire"][dtype]
    assert wire["trained_steps"] == wire["steps"] == 12
    assert 1.0 <= wire["bytes"] / wire["limit"] <= 1.0 + TOLERANCE


def test_bfloat16_halves_the_bytes(measured: dict[str, Any]) -> None:
    wire = measured["wire"]
    # Ids, which are no values, stay as they are: 4 of 132 bytes of a row of 16 values.
    assert 0.50 < wire["bfloat16"]["bytes"] / wire["float32"]["bytes"] < 0.55


def test_the_plan_says_what_a_ps_needs_at_its_peak(measured: dict[str, Any]) -> None:
    """What it reserves for the process is neither too little nor more than half of it unused."""
    memory = measured["memory"]
    for needed, peak in zip(memory["needed"], memory["peak"], strict=True):
        assert 0.5 * needed < peak <= needed
