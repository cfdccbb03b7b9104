"""What a finished job deploys."""

import pathlib

import pytest

from cloud import deploy
from tests.cloud.deployment import exports
from tests.job_dir.reports import short_report
from tfps.errors import UserError
from tfps.experiment.experiment import Train
from tfps.job_dir import JobDir, report
from trainer.chief import deploying

IMAGE = "us-central1-docker.pkg.dev/my-project/images/serving:2.20.0"
VERTEX = "--target=vertex --project=my-project --region=us-central1"
VERTEX_GOOD = f"{VERTEX} --image={IMAGE} --machine=type=n2-standard-2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--target is missing; give one of"),
        ("--target=moon", "value should be one of <tfserving"),
        ("--target=tfserving --model=runs/job", "--model is for the program by itself"),
        ("--target=tfserving --dry_run", "--dry_run is for the program by itself"),
        ("undeploy clicks --target=kubernetes", "the verb undeploy deploys no model"),
        ("--target=tfserving --name='clicks", "No closing quotation; quote as in a shell"),
        ("--target=tfserving --namespace=x", "--namespace is of --target=kubernetes"),
        ("--target=tfserving", "--output is missing; name a directory for the files"),
        ("--target=tfserving --output=o --name=Clicks", "--name=Clicks: write 1 to 40 lowercase"),
        ("--target=tfserving --output=o --machine=type=n2-standard-2", "takes no --machine=type"),
        ("--target=tfserving --output=o --max_replicas=2", "is one server: leave"),
        (
            "--target=kubernetes --machine=accelerator=nvidia-l4:1",
            "needs an --image that uses GPUs",
        ),
        ("--target=vertex --region=us-central1", "--project is missing"),
        (
            f"{VERTEX} --machine=type=n2-standard-2",
            "--image=tensorflow/serving:2.20.0: Vertex AI takes",
        ),
        (f"{VERTEX} --image={IMAGE}", "--machine=type=… is missing; give a machine type"),
        (
            f"{VERTEX_GOOD} --machine=accelerator=NVIDIA_L4:1",
            "cannot have a NVIDIA_L4; it comes with g2-s",
        ),
        (f"{VERTEX_GOOD} --machine=memory=8GiB", "Vertex AI has no --machine=memory=…, only"),
        (f"{VERTEX_GOOD} --max_batch_size=8", "computes each request alone; leave it out"),
        (f"{VERTEX_GOOD} --service_account=me", "--service_account=me: write its e-mail address"),
        (f"{VERTEX_GOOD} --deployed_model=1", "--deployed_model is of undeploy; leave it"),
        (f"{VERTEX_GOOD} --traffic=101", "traffic"),
        (f"{VERTEX_GOOD} --instances=absent.json", "--instances=absent.json cannot be read"),
        (f"{VERTEX_GOOD} --max_replicas=0", "max_replicas"),
    ],
)
def test_arguments_are_refused_before_anything_is_trained(arguments, message):
    with pytest.raises(UserError, match=rf"--deploy_to=.*: .*{message}"):
        deploy.check(arguments, "gs://bucket/clicks", here=True)


@pytest.mark.parametrize(
    "arguments",
    [
        VERTEX_GOOD,
        f"{VERTEX_GOOD} --traffic=10 --max_replicas=3 --label=team=ads",
        f"{VERTEX} --image={IMAGE}-gpu --machine=type=g2-standard-8,accelerator=NVIDIA_L4:1",
        "--target=kubernetes --namespace=serving --max_replicas=3",
        "--target=tfserving --output=served",
    ],
)
def test_arguments_with_which_a_model_can_be_deployed(arguments):
    found = deploy.check(arguments, "gs://bucket/clicks", here=True)
    assert found == tuple(arguments.split())


@pytest.mark.parametrize(
    ("arguments", "job_dir", "message"),
    [
        (VERTEX_GOOD, "/runs/clicks", "the model is in /runs/clicks/export, but Vertex AI reads"),
        ("--target=kubernetes", "/runs/clicks", "/runs/clicks/export on this machine, where no po"),
        ("--target=kubernetes --volume=c:/runs", "/runs/clicks", ""),
        ("--target=kubernetes", "gs://bucket/2026_clicks", "--name=2026-clicks: write 1 to 40"),
        ("--target=kubernetes --name=clicks", "gs://bucket/2026_clicks", ""),
    ],
)
def test_the_job_s_directory_is_one_that_can_be_deployed_from(arguments, job_dir, message):
    if not message:
        deploy.check(arguments, job_dir, here=True)
        return
    with pytest.raises(UserError, match=rf"--deploy_to=.*: .*{message}"):
        deploy.check(arguments, job_dir, here=True)


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path):
    """A job that has exported its second version."""
    exports.write(tmp_path / "clicks", 1, 2, metrics={"loss": 0.4, "auc": 0.81})
    return str(tmp_path / "clicks")


def finish(job_dir, **fields):
    """Writes the report of a finished job, and carries out its plan; returns the exit code."""
    found = {"export": f"{job_dir}/export/2", **fields}
    report.write(JobDir(job_dir), short_report(status="finished", **found))
    arguments = deploy.check(f"--target=tfserving --output={job_dir}/served", job_dir, here=True)
    return deploying.deploy_export(arguments, JobDir(job_dir))


def served(job_dir):
    """Where the configuration of a deployed model is."""
    return pathlib.Path(job_dir, "served")


def test_a_version_is_deployed(job_dir, caplog):
    caplog.set_level("INFO")
    assert finish(job_dir) == 0
    assert f"deploying {job_dir}/export/2" in caplog.text
    assert 'name: "clicks"' in (served(job_dir) / "models.config").read_text()


def test_a_model_that_became_no_version_is_not(job_dir, caplog):
    assert finish(job_dir, export=None, export_refused="there") == 0
    assert not served(job_dir).exists()
    assert "not deployed: the model in there is no version" in caplog.messages


def test_a_deployment_that_fails_says_how_to_try_again(job_dir, caplog, capsys):
    served(job_dir).write_text("a file where the directory is to be")
    assert finish(job_dir) in (2, 3)
    assert "error: " in capsys.readouterr().err
    assert "not deployed; try again with python -m cloud.deploy --target=tfserving" in caplog.text
    assert f"--model={job_dir}/export/2" in caplog.text


def test_a_run_that_will_have_nothing_to_deploy_is_refused():
    with pytest.raises(UserError, match=r"--deploy_to with --train\.export=none"):
        deploying.check(Train(export="none"))
