"""`python -m cloud.probe`: what a container's liveness probe runs."""

import json
import os
import subprocess
import sys

import pytest

from tests import peers
from tests.answering_servers import AnsweringServers
from tests.project import ROOT


def probe(*argv, tf_config=None):
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "cloud.probe", *argv],
        cwd=ROOT,
        env=environ | ({"TF_CONFIG": json.dumps(tf_config)} if tf_config else {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_task_that_answers():
    with AnsweringServers() as server:
        done = probe(server.address)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        port = server.address.split(":")[1]
        cluster = {"chief": ["h:1"], "worker": [f"elsewhere.invalid:{port}"], "ps": ["h:3"]}
        own = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
        assert probe(tf_config=own).returncode == 0


def test_a_task_that_does_not_answer():
    address = peers.refusing_address()
    done = probe(address)
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {address}: its port refused connections; start it")


@pytest.mark.parametrize("argv", [("here",), ("h:x",), ("h:1", "h:2")])
def test_what_is_no_address(argv):
    done = probe(*argv)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")


def test_a_task_that_serves_nothing():
    cluster = {"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]}
    assert probe().returncode == 0
    own = {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}
    assert probe(tf_config=own).returncode == 0


def test_it_does_not_load_tensorflow():
    code = "import sys, cloud.probe; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
