"""Training without ps, on real processes: exact, equal on all replicas, and finished."""

import json
import os
import subprocess
import sys

import pytest

from cloud.local.command import Ports
from tests.project import ROOT
from tfps.cluster.spec import Cluster

pytestmark = pytest.mark.slow
OPTIMIZERS = ("SGD", "Adagrad", "Adam", "Adam of each")
PATIENCE = 250  # on a machine that others keep busy; seconds on an idle one


@pytest.fixture(name="outcomes", scope="module")
def outcomes_fixture():
    """What the chief of two replicas printed, by optimizer."""
    with Ports(2) as ports:
        chief, worker = (f"127.0.0.1:{port}" for port in ports.numbers)
        cluster = Cluster((chief,), (worker,))
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.integration.replica_program"],
                cwd=ROOT,
                env=os.environ | {"TF_CONFIG": cluster.tf_config(job, 0)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for job in ("chief", "worker")
        ]
        try:
            output, _ = processes[0].communicate(timeout=PATIENCE)
            processes[1].wait(PATIENCE)
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    return {found["optimizer"]: found for found in map(json.loads, output.splitlines())}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replicas_train_as_one_process_with_all_their_batches(outcomes, optimizer):
    found = outcomes[optimizer]
    assert found["steps"] == 100
    assert found["difference"] < 1e-5 < found["largest"]
    assert found["loss_difference"] < 1e-5


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replicas_stay_equal_bit_for_bit(outcomes, optimizer):
    assert outcomes[optimizer]["equal"]
