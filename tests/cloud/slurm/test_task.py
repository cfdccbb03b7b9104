"""Where a task is placed, and how it learns that."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from cloud.slurm.placement import Placement
from cloud.slurm.task import tf_config
from tests.project import ROOT
from tfps.cluster.tf_config import decode
from tfps.errors import UserError

ENVIRON = {
    "TFPS_HOSTS": "n1 n2 n3",
    "TFPS_TASKS": "chief=1 worker=4 ps=2 evaluator=1",
    "TFPS_FIRST_PORT": "5000",
}


def test_tasks_are_placed_and_numbered():
    placement = Placement.of(ENVIRON)
    assert placement.nodes("worker") == ["n1", "n2", "n3", "n1"]
    assert placement.nodes("evaluator") == ["n3"]
    cluster = placement.cluster()
    assert cluster.chief == ("n1:5000",)
    assert cluster.workers == ("n1:5001", "n2:5002", "n3:5003", "n1:5004")
    assert cluster.ps == ("n1:5005", "n2:5006")
    assert cluster.evaluators == ("n3:5007",)
    started = ENVIRON | {"SLURM_PROCID": "1", "SLURMD_NODENAME": "n2"}
    config = json.loads(tf_config(started, "ps"))
    assert config["task"] == {"type": "ps", "index": 1}
    assert tf_config(started | {"TFPS_TASKS": "chief=1"}, "chief") is None


def test_beside_a_chief_that_works_nobody_else_does():
    """As long as there are other nodes; its port is free."""
    placement = Placement.of(ENVIRON | {"TFPS_CHIEF_WORKS": "1"})
    assert placement.nodes("worker") == ["n2", "n3", "n1", "n2"]
    cluster = placement.cluster()
    assert cluster.chief == ("n1:5000",)
    assert cluster.workers == ("n2:5002", "n3:5003", "n1:5004", "n2:5005")
    assert cluster.ps == ("n1:5006", "n2:5007")
    assert decode({"TF_CONFIG": cluster.tf_config("ps", 0)}, 0).workers[-1] == "n1:5001"


def test_a_large_cluster_reaches_a_task_in_a_file(tmp_path):
    """Since it is longer than a variable can be; the file goes with the task."""
    (tmp_path / "acting.py").write_text(
        "import os\nfrom tfps.cluster.tf_config import decode\nfound = decode(os.environ)\n"
        "print(found.name, found.address, os.environ['TF_CONFIG_FILE'], sep='\\n')"
    )
    nodes = [f"{'n' * 60}{node}" for node in range(3)]
    own = {
        "TFPS_HOSTS": " ".join(nodes),
        "TFPS_TASKS": "chief=1 worker=1900 ps=100",
        "TFPS_FIRST_PORT": "5000",
        "TFPS_RESTARTS": "0",
        "SLURM_PROCID": "7",
        "SLURMD_NODENAME": nodes[1],
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }
    said = subprocess.run(
        [sys.executable, "-m", "cloud.slurm.task", "run", "worker", "acting"],
        env=os.environ | own,
        check=True,
        capture_output=True,
        text=True,
    )
    name, address, path = said.stdout.splitlines()
    assert (name, address) == ("worker 7 of 1900", f"{nodes[1]}:5008")
    assert not pathlib.Path(path).exists()


def test_a_task_on_another_node_is_refused():
    with pytest.raises(UserError, match="ps 1 was started on n3, but the others look for it on n2"):
        tf_config(ENVIRON | {"SLURM_PROCID": "1", "SLURMD_NODENAME": "n3"}, "ps")
    with pytest.raises(UserError, match="TFPS_TASKS is missing"):
        tf_config({"TFPS_HOSTS": "n1"}, "ps")
