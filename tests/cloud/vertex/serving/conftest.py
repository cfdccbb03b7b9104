"""Runs `python -m cloud.deploy --target=vertex` in this process, against stand-ins for Google's."""

import numpy as np
import pytest

from cloud import deploy as program
from cloud.vertex import client
from cloud.vertex.serving import predictions
from tests.cloud.deployment import exports
from tests.cloud.vertex.conftest import PLACE
from tests.cloud.vertex.fake_serving import FakeServing, is_whole
from tfps.data.feature import Feature
from tfps.export.versions import write_warm_up
from tfps.storage import objects

IMAGE = "us-central1-docker.pkg.dev/my-project/images/serving:2.20.0"
DEPLOYMENT = (f"--image={IMAGE}", "--machine=type=n2-standard-2", "--name=movies")
FEATURES = (Feature("user", "int64", vocabulary=50), Feature("context", "float32", (2,)))
SIGNATURES = {"serving_default": "features", "serving_examples": "examples"}


@pytest.fixture(name="serving")
def serving_fixture():
    with FakeServing() as serving:
        yield serving


@pytest.fixture(name="deploy")
def deploy_fixture(serving, capfd, monkeypatch):
    """Runs the program on the stand-in; returns its exit code, and what it wrote."""
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(predictions, "_SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(predictions, "_PAUSE_SECONDS", 0.02)

    def deploy(*argv):
        place = (*PLACE, f"--vertex_endpoint={serving.endpoint}", "--poll_seconds=0.01")
        capfd.readouterr()
        code = program.main(["cloud.deploy", *argv, *place])
        return code, *capfd.readouterr()

    return deploy


@pytest.fixture(name="exported", scope="module")
def exported_fixture(tmp_path_factory):
    """Puts what an export leaves into the bucket; returns its JOB_DIR."""
    directory = tmp_path_factory.mktemp("export")
    records = {"user": np.arange(3), "context": np.ones((3, 2), np.float32)}
    write_warm_up(str(directory), FEATURES, records)
    warm_up = (directory / exports.WARM_UP).read_bytes()

    def exported(number, job="run", graph=b"graph"):
        bucket = objects.client().bucket("bucket")
        content = exports.files(FEATURES, graph=graph, warm_up=warm_up, signatures=SIGNATURES)
        for name, text in content.items():
            bucket.blob(f"{job}/export/{number}/{name}").upload_from_string(text)
        return f"gs://bucket/{job}"

    return exported


@pytest.fixture(name="job", scope="module")
def job_fixture(cloud_process, exported):
    """The JOB_DIR of a job that has exported three versions."""
    for number in (1, 2, 3):
        exported(number, graph=f"graph {number}".encode())
    return "gs://bucket/run"


@pytest.fixture(name="near")
def near_fixture(cloud):
    """The bucket lies where the servers are."""
    cloud.set(locations={"bucket": "US-CENTRAL1"})


@pytest.fixture(name="deploy_version")
def deploy_version_fixture(near, job, deploy):
    """Deploys a version of the job as `movies`."""

    def deploy_version(number, *flags):
        return deploy(f"--model={job}", f"--version={number}", *DEPLOYMENT, *flags)

    return deploy_version


def versions(serving):
    """Where the versions of the model have been exported to."""
    return [version.version_description for version in serving.models.get("movies", ())]


def served(serving):
    """What is deployed: percents of the traffic by the number that the version was exported as."""
    endpoint, exports = serving.endpoints["movies"], versions(serving)
    return {
        exports[int(each.model_version_id) - 1][-1]: endpoint.traffic_split.get(each.id, 0)
        for each in endpoint.deployed_models
    }


def check_splits(serving):
    """Looks at every split of traffic that there ever was."""
    wrong = [split for split in serving.splits if not is_whole(*split)]
    assert not wrong, wrong
