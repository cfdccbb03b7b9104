"""A dataset is predicted without an endpoint: one job, followed to its end."""

import signal
import subprocess
import sys
import time

import pytest

from cloud.deployment import model_files
from cloud.deployment.default_signature import _saved_model_class
from cloud.deployment.served_model import ServedModel
from tests.cloud.deployment import exports
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


def test_files_of_serialized_examples_are_predicted_by_a_version_of_their_own(
    near, serving, deploy, exported
):
    graph = saved_model()
    job = exported(1, job="examples", graph=graph)
    flags = (*DEPLOYMENT, "--predictions=gs://bucket/out")
    assert deploy("batch", f"--model={job}", *flags, "--input=gs://bucket/rows/*.jsonl")[0] == 0
    for _ in range(2):
        files = "--input=gs://bucket/rows/*.tfrecord"
        assert deploy("batch", f"--model={job}", *flags, files, "--again")[0] == 0
    source = f"{job}/export/1"
    assert versions(serving) == [source, f"{source} for serialized examples"]
    used = [predicted.model.partition("@")[2] for predicted in serving.batches.values()]
    assert [used[0] == each for each in used] == [True, False, False]
    by_default, by_example = (version.artifact_uri for version in serving.models["movies"])
    assert signatures(model_files.read(f"{by_default}/1/saved_model.pb")) == {
        "serving_default": b"features",
        "serving_examples": b"examples",
    }
    assert signatures(model_files.read(f"{by_example}/1/saved_model.pb")) == {
        "serving_default": b"examples",
        "serving_examples": b"features",
    }
    served = ServedModel.read(by_example)
    assert (served.default_takes, served.has_warm_up) == ("examples", False)
    assert set(model_files.files(f"{by_default}/1")) - set(
        model_files.files(f"{by_example}/1")
    ) == {exports.WARM_UP}


def saved_model():
    """A graph file with both signatures, whose contents say what they take."""
    made = _saved_model_class()()
    graph = made.meta_graphs.add()
    for key, value in (("serving_default", b"features"), ("serving_examples", b"examples")):
        graph.signature_def.add(key=key, value=value)
    return made.SerializeToString()


def signatures(content):
    [graph] = _saved_model_class().FromString(content).meta_graphs
    return {entry.key: entry.value for entry in graph.signature_def}


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
    number = name.rpartition("/")[2]
    code, out, err = deploy("cancel", number)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{number}: asked to end",
        "movies: CANCELLING",
        "movies: CANCELLED",
        f"{number} costs nothing any more; it has left no predictions",
    ]
    assert deploy("cancel", number)[0] == 0
    assert serving.counts["cancel"] == 1  # what has ended is not asked to end
    code, out, _ = deploy("list")
    assert (code, f"batch movies: CANCELLED  {name}" in out) == (0, True)
    serving.states = ("SUCCEEDED",)
    assert batch()[0] == 0
    assert len(serving.batches) == 2  # what was ended is begun anew


def test_what_has_been_predicted_is_predicted_once_more_only_when_that_is_said(serving, batch):
    assert batch()[0] == 0
    (first,) = serving.batches
    code, out, err = batch()
    assert (code, err, len(serving.batches)) == (0, "", 1)
    assert out.splitlines() == [
        f"{first} has done that already, from files and tables of these names; give --again to "
        "predict them once more",
        "movies: SUCCEEDED (1,000 predicted)",
        "predictions: gs://bucket/out/prediction-1",
    ]
    serving.states = ("RUNNING",)
    assert batch("--again", "--wait_seconds=0.1")[0] == 3
    code, out, _ = batch("--again", "--wait_seconds=0.1")
    assert (code, len(serving.batches)) == (3, 2)
    assert "cost money" not in out
    serving.states = ("QUEUED", "RUNNING", "SUCCEEDED")
    assert batch("--key=user")[0] == 0
    assert len(serving.batches) == 3  # another request


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_what_has_ended_otherwise_is_begun_anew(serving, batch, state):
    serving.states = (state,)
    assert batch()[0] == 3
    serving.states = ("SUCCEEDED",)
    assert batch()[0] == 0
    assert len(serving.batches) == 2


def test_an_end_that_takes_too_long_is_told(serving, batch, deploy):
    serving.states = ("RUNNING",)
    assert batch("--wait_seconds=0.1")[0] == 3
    (name,) = serving.batches
    serving.lasting = ("CANCELLING",)
    code, _, err = deploy("cancel", name, "--wait_seconds=0.1")
    assert code == 3
    assert f"{name} is CANCELLING after 0.1 s (--wait_seconds); it goes on; look again with" in err


@pytest.mark.parametrize("state", ["FAILED", "PARTIALLY_SUCCEEDED", "CANCELLED", "EXPIRED"])
def test_a_job_that_ends_otherwise_is_told(serving, batch, state):
    serving.states = ("RUNNING", state)
    serving.stats = {"successful_count": 900, "failed_count": 100}
    code, out, err = batch()
    assert code == 3
    assert f"movies: {state} (900 predicted, 100 failed)" in out
    assert f": {state}: see its page in Google's console; gs://bucket/out/prediction-1 tells" in err


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("us-central1", ""),
        ("US", ""),
        ("EU", "the dataset lies in eu, but this job runs in us-central1, and Vertex AI needs"),
        ("us-east1", "the dataset lies in us-east1, but this job runs in us-central1"),
        (None, "there is no dataset my-project.rows; make it first"),
    ],
)
def test_a_dataset_lies_where_the_servers_are(near, job, serving, deploy, location, message):
    serving.datasets = {"rows": location} if location else {}
    serving.faults["dataset"] = [503]
    flags = ("--input=bq://my-project.rows.today", "--predictions=gs://bucket/out")
    code, _, err = deploy("batch", f"--model={job}", *DEPLOYMENT, *flags)
    assert (code, message in err) == (2 if message else 0, True)
    assert len(serving.batches) == (0 if message else 1)


def test_where_a_dataset_lies_may_be_unknown_to_who_reads_it(near, job, serving, deploy):
    serving.faults["dataset"] = [403, 403]
    flags = ("--input=bq://my-project.rows.today", "--predictions=bq://my-project.found")
    assert deploy("batch", f"--model={job}", *DEPLOYMENT, *flags)[0] == 0
    assert serving.counts["dataset"] == 2


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
