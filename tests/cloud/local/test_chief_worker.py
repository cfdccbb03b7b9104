"""The worker next to the chief, which the launcher does not start itself."""

import json
import os
import subprocess
import sys

import pytest

from cloud.job_spec import JobSpec, Role
from cloud.local import faults
from cloud.local.target import LocalTarget
from cloud.local.task_output import TaskOutput
from tfps.job_dir.task_name import TaskName

ROLES = (Role("chief"), Role("worker", 2), Role("ps"))
# Starts a worker and, before it, what has no task.
CHIEF = """
import json, os, subprocess, sys
config = json.dumps({"task": {"type": "worker", "index": 2}})
waits = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
for own in ({}, {"TF_CONFIG": "{}"}, {"TF_CONFIG": config}):
    started = subprocess.Popen(waits, env={**os.environ, **own}, stdout=subprocess.PIPE)
    started.stdout.readline()
print(started.pid, flush=True)
sys.stdin.read()
"""


def test_its_process_is_found_in_the_chiefs_session():
    chief = subprocess.Popen(
        [sys.executable, "-c", CHIEF],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != "TF_CONFIG"},
    )
    with chief:
        worker = int(chief.stdout.readline())
        assert faults.find(chief.pid, TaskName("worker", 2)) == worker
        assert faults.find(chief.pid, TaskName("worker", 1)) is None
        assert faults.find(os.getsid(0), TaskName("worker", 2)) is None
        chief.stdin.close()


def test_its_lines_have_its_name(tmp_path):
    with (tmp_path / "output").open("wb") as file:
        output = TaskOutput(file.fileno(), is_terminal=False, has_colour=False)
        output.feed("chief", b"mine\n[worker 2] its own\n[w")
        output.feed("chief", b"orker 2] again\n[ps 0] a chief's\n")
    assert (tmp_path / "output").read_text().splitlines() == [
        "[chief] mine",
        "[worker 2] its own",
        "[worker 2] again",
        "[chief] [ps 0] a chief's",
    ]


@pytest.mark.parametrize(
    ("more", "ports"),
    [
        ((), {"--chief_worker_port=2226"}),
        (("--chief_worker_port=4000",), {"--chief_worker_port=4000"}),
    ],
)
def test_every_task_learns_its_port(more, ports):
    arguments = ("--config=configs/smoke.py", "--job_dir=runs/x", "--chief_works", *more)
    requests = LocalTarget().render(JobSpec("trial", arguments, ROLES))
    clusters = []
    for request in requests:
        assert {each for each in request["command"] if "_port" in each} == ports
        clusters.append(json.loads(request["environment"]["TF_CONFIG"])["cluster"])
    assert len(clusters) == 4
    assert all(len(cluster["worker"]) == 2 for cluster in clusters)  # TF_CONFIG does not name it
