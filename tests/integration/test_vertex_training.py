"""The requests to Vertex AI, run: every replica as a process, in the environment it would have."""

import contextlib
import json
import subprocess
import sys

import pytest
import tensorflow as tf
from cluster_process import Program

from cloud.local.command import Ports
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.project import ROOT
from tests.training_fixtures import dataset

pytestmark = pytest.mark.slow
FLAGS = (
    *("--target=vertex", "--project=my-project", "--region=us-central1", "--image=r/i"),
    *("--machine=type=n2-standard-8", "--dry_run", "--format=json"),
)
LONG = 200  # seconds that a whole job may take on a busy machine
POOLS = ("chief", "worker", "ps", "evaluator")


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    dataset(directory, records=300)
    return directory


def request(data, job_dir, *flags):
    """The body of the request for a job on this data."""
    arguments = [f"--data.{kind}={data}" for kind in ("train", "eval")]
    own = ["--config=configs/smoke.py", *arguments, f"--job_dir={job_dir}"]
    command = [sys.executable, "-m", "cloud.submit", *FLAGS, *flags, "--", *own]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def environments(spec, addresses, output, trial):
    """Job, environment and arguments of each replica, as Vertex AI documents them.

    Args:
        spec: A CustomJobSpec.
        addresses: As many as there are replicas.
        output: Output directory of the job, or of the trial.
        trial: Number of the trial, if it is one.
    """
    pools = [pool for pool in spec["workerPoolSpecs"]]
    at = iter(addresses)
    by_pool = [[next(at) for _ in range(int(pool["replicaCount"]))] for pool in pools]
    jobs = dict(zip(POOLS, by_pool, strict=False))
    cluster = {job: hosts for job, hosts in jobs.items() if job != "evaluator"}
    for number, (job, hosts) in enumerate(jobs.items()):
        container = pools[number]["containerSpec"]
        assert container["command"] == ["python", "-m", "trainer.task"]
        for index in range(len(hosts)):
            about = {"cloud": "id", "index": index} | ({"trial": trial} if trial else {})
            pool = f"workerpool{number}"
            of_pools = {f"workerpool{place}": each for place, each in enumerate(by_pool)}
            own = {
                "CLOUD_ML_PROJECT_ID": "123",
                "AIP_CHECKPOINT_DIR": f"{output}/checkpoints/",
                "AIP_MODEL_DIR": f"{output}/model/",
                "AIP_TENSORBOARD_LOG_DIR": f"{output}/logs/",
                "CLUSTER_SPEC": json.dumps(
                    {
                        "cluster": of_pools,
                        "environment": "cloud",
                        "task": {**about, "type": pool},
                        "job": json.dumps({"scaleTier": "CUSTOM"}),
                    }
                ),
            }
            if sum(map(len, by_pool)) > 1:
                task = {**about, "type": job}
                about_job = {"cluster": cluster, "environment": "cloud", "job": {}, "task": task}
                own["TF_CONFIG"] = json.dumps(about_job)
            yield job, own, container["args"]


def read_json(path):
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def test_a_custom_job_trains_to_the_end(cloud, data):
    output = "gs://bucket/run"
    body = request(data, output, "--workers=2", "--ps=1", "--evaluator")
    spec = body["jobSpec"]
    assert spec["baseOutputDirectory"] == {"outputUriPrefix": output}
    with contextlib.ExitStack() as stack:
        *ports, beside = stack.enter_context(Ports(6)).numbers
        addresses = [f"127.0.0.1:{port}" for port in ports]
        more = f"--chief_worker_port={beside}"
        tasks = [
            (job, stack.enter_context(Program(*arguments, more, environ=environ)))
            for job, environ, arguments in environments(spec, addresses, output, None)
        ]
        assert [job for job, _ in tasks] == ["chief", "worker", "worker", "ps", "evaluator"]
        (_, chief), (_, worker), *_ = tasks
        assert chief.finish(LONG) == 0, chief.text
        for job, task in tasks[1:]:  # Vertex AI would kill them; they end by themselves
            assert task.finish() == 0, f"{job}: {task.text}"
    assert "running as chief on Vertex AI" in chief.text
    assert "running as worker 0 of 3 on Vertex AI" in worker.text
    assert "running as worker 2 of 3 on Vertex AI" in chief.text  # in its container
    report = read_json(f"{output}/report.json")
    assert (report["status"], report["examples"]["skipped"]) == ("finished", 0)
    assert report["examples"]["trained"] == 600
    assert [row["epoch"] for row in report["evaluations"]][-1] == 2
    assert tf.io.gfile.exists(f"{output}/model/saved_model.pb")
    assert "evaluating" in tasks[-1][1].text


BY_AUC = "--train.best_metric=auc"


def test_a_trial_trains_with_its_settings_and_reports(cloud, data, tmp_path):
    body = request(data, "gs://bucket/tuned")
    output, metrics = "gs://bucket/tuned/7", tmp_path / "output.metrics"
    alone = environments(body["jobSpec"], ["127.0.0.1:1"], output, "7")
    ((_, environ, arguments),) = alone
    trial = {"CLOUD_ML_TRIAL_ID": "7", "CLOUD_ML_HP_METRIC_FILE": str(metrics)}
    settings = ("--task.learning_rate=0.02", "--train.batch_size", "16.0", BY_AUC)
    with Program(*arguments, *settings, environ=environ | trial) as program:
        assert program.finish(LONG) == 0, program.text
    report = read_json(f"{output}/report.json")
    assert (report["batch_size"], report["examples"]["skipped"]) == (16, 0)
    assert report["best_evaluation"]["metric"] == "auc"
    found = [json.loads(line) for line in metrics.read_text().splitlines()]
    auc = [entry["auc"] for entry in found if "auc" in entry]
    assert auc == [str(row["auc"]) for row in report["evaluations"]]
    assert {entry["trial"] for entry in found} == {"7"}
