"""Runs `python -m cloud.submit` in this process, against stand-ins for Google's services."""

import pytest

from cloud import submit as program
from cloud.vertex import client
from tests.cloud.vertex.fake_vertex import FakeVertex

PLACE = ("--target=vertex", "--project=my-project", "--region=us-central1")
IMAGE = "us-docker.pkg.dev/my-project/images/tfps:1"
CLUSTER = (f"--image={IMAGE}", "--workers=2", "--ps=1", "--machine=type=n2-standard-8")
ARGUMENTS = ("--config=configs/smoke.py", "--job_dir=gs://bucket/run")


@pytest.fixture(name="vertex")
def vertex_fixture():
    with FakeVertex() as vertex:
        yield vertex


@pytest.fixture(name="submit")
def submit_fixture(capfd, monkeypatch):
    """Runs the program; returns its exit code, and what it wrote to stdout and stderr."""
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.02)

    def submit(*argv):
        capfd.readouterr()
        code = program.main(["cloud.submit", *argv])
        return code, *capfd.readouterr()

    return submit


@pytest.fixture(name="vertex_submit")
def vertex_submit_fixture(submit, vertex):
    """Runs the program on the stand-in of Vertex AI, without long waits."""

    def vertex_submit(*argv):
        place = (*PLACE, f"--vertex_endpoint={vertex.endpoint}", "--poll_seconds=0.02")
        return submit(*place, *argv)

    return vertex_submit
