"""A dataset is predicted without an endpoint: one job, followed to its end."""

import signal
import subprocess
import sys
import time

import pytest

from tests.cloud.vertex.conftest import PLACE
from tests.cloud.vertex.serving.conftest import DEPLOYMENT, versions
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.project import ROOT

DATA = ("--input=gs://bucket/rows/*.jsonl", "--predictions=gs://bucket/out")


@pytest.fixture(name="batch")
def batch_fixture(near, job, deploy):
    def batch(*flags):
        return deploy("batch", f"--model={job}", *DEPLOYMENT, *DATA, *flags)

    return batch


def test_a_dataset_is_predicted(serving, batch):
    code, out, err = batch("--max_replicas=4", "--key=user", "--request_records=64")
    assert (code, err) == (0, "")
    (predicted,) = serving.batches.values()
    assert predicted.input_config.instances_format == "jsonl"
    assert list(predicted.input_config.gcs_source.uris) == ["gs://bucket/rows/*.jsonl"]
    assert predicted.output_config.gcs_destination.output_uri_prefix == "gs://bucket/out"
    assert predicted.instance_config.key_field == "user"
    assert predicted.manual_batch_tuning_parameters.batch_size == 64
    resources = predicted.dedicated_resources
    assert (resources.starting_replica_count, resources.max_replica_count) == (1, 4)
    *_, cost, begun, queued, running, succeeded, where = out.splitlines()
    assert cost == "1 to 4 n2-standard-2 for movies cost money until the job ends"
    assert begun.startswith(f"{predicted.name}: end it with `python -m cloud.deploy cancel")
    assert [queued, running, succeeded, where] == [
        "movies: QUEUED",
        "movies: RUNNING",
        "movies: SUCCEEDED (1,000 predicted)",
        "predictions: gs://bucket/out/prediction-1",
    ]
    assert versions(serving) == ["gs://bucket/run/export/3"]
    assert serving.endpoints == {}


@pytest.mark.parametrize("faults", [[429], ["lost"], [503, "lost", "lost", 503]], ids=str)
def test_one_job_however_often_requests_are_repeated(serving, batch, faults):
    kinds = ("batch", "upload", "get", "list", "operation")
    serving.faults = {kind: list(faults) for kind in kinds}
    assert batch()[0] == 0
    assert (len(serving.batches), len(versions(serving))) == (1, 1)


def test_a_job_that_goes_on_is_followed_again(serving, batch, deploy):
    serving.states = ("RUNNING",)
    for _ in range(2):
        code, _, err = batch("--wait_seconds=0.1")
        assert code == 3
        assert "is RUNNING after 0.1 s (--wait_seconds); it goes on; the same command" in err
    (name,) = serving.batches
    assert deploy("cancel", name.rpartition("/")[2]) == (
        0,
        f"{name.rpartition('/')[2]}: asked to end\n",
        "",
    )
    code, out, _ = deploy("list")
    assert (code, f"batch movies: CANCELLED  {name}" in out) == (0, True)
    serving.states = ("SUCCEEDED",)
    assert batch()[0] == 0
    assert len(serving.batches) == 2  # what was ended is begun anew


@pytest.mark.parametrize("state", ["FAILED", "PARTIALLY_SUCCEEDED", "CANCELLED", "EXPIRED"])
def test_a_job_that_ends_otherwise_is_told(serving, batch, state):
    serving.states = ("RUNNING", state)
    serving.stats = {"successful_count": 900, "failed_count": 100}
    code, out, err = batch()
    assert code == 3
    assert f"movies: {state} (900 predicted, 100 failed)" in out
    assert f": {state}: see its page in Google's console; gs://bucket/out/prediction-1 tells" in err


def test_a_refusal_is_told(serving, batch):
    serving.faults["batch"] = [403]
    code, _, err = batch()
    assert (code, serving.batches) == (2, {})
    assert "roles/aiplatform.user" in err


def interrupted(serving, has_happened, *flags):
    """Runs the program in a process of its own, and interrupts it once something has happened.

    Args:
        serving: The stand-in.
        has_happened: Of the last line that the program has written.
        flags: The program's.

    Returns:
        What it writes then.
    """
    place = (*PLACE, f"--vertex_endpoint={serving.endpoint}", "--poll_seconds=0.05")
    with subprocess.Popen(
        [sys.executable, "-m", "cloud.deploy", *flags, *DEPLOYMENT, *place],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        while not has_happened(program.stdout.readline()):
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (130, "")
    return out


def test_an_interrupt_leaves_the_job(near, job, serving):
    serving.states = ("RUNNING",)
    out = interrupted(
        serving, lambda line: line == "movies: RUNNING\n", "batch", f"--model={job}", *DATA
    )
    assert "goes on; the same command follows it again; end it with `python -m cloud" in out
    assert not serving.counts["cancel"]


@pytest.mark.slow
def test_an_interrupt_leaves_an_operation(near, job, serving, deploy):
    serving.slow = ("deploy",)

    def is_under_way(line):
        if "deploying movies@1 to movies" not in line:
            return False
        while not any(each["kind"] == "deploy" for each in list(serving.operations.values())):
            time.sleep(0.01)
        return True

    out = interrupted(serving, is_under_way, f"--model={job}")
    assert "interrupted; the same command goes on from there, and `python -m cloud.deploy" in out
    for operation in serving.operations.values():
        operation["looks"] = 1
    assert deploy(f"--model={job}", *DEPLOYMENT)[0] == 0
    assert serving.counts["deploy"] == 1
