"""What a finished job deploys, and when."""

import dataclasses
import math
import pathlib
import re

import pytest

from tests.cloud.deployment import exports
from tests.job_dir.reports import short_report
from tests.training_fixtures import dataset, reused
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.experiment.experiment import Data
from tfps.job_dir import report
from trainer.chief.deploying import Condition, DeployPlan
from trainer.chief.run_inputs import RunInputs


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("auc>=0.8", 0.8, 0.7999),
        ("loss<0.5", 0.4999, 0.5),
        (" clicked_auc > 7e-1 ", 0.71, 0.7),
        ("rmse<=2", 2.0, math.nan),
        ("rmse>-1", -0.5, -math.inf),
    ],
)
def test_a_condition_holds_for_what_is_good_enough(text, good, bad):
    condition = Condition.parse(text)
    assert condition.holds(good)
    assert not condition.holds(bad)
    assert Condition.parse(str(condition)) == condition


@pytest.mark.parametrize("text", ["", "auc", "auc=0.8", "auc>=high", "auc>=nan", "0.8<=auc<1"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UserError, match=r"--deploy_if=.*: write METRIC>=NUMBER"):
        Condition.parse(text)


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
    ],
)
def test_arguments_are_refused_before_anything_is_trained(arguments, message):
    with pytest.raises(UserError, match=rf"--deploy_to=.*: {message}"):
        DeployPlan.parse(arguments, ())


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path):
    """A job that has exported its second version."""
    exports.write(tmp_path / "clicks", 1, 2, metrics={"loss": 0.4, "auc": 0.81})
    return str(tmp_path / "clicks")


def finish(job_dir, conditions=(), **fields):
    """Writes the report of a finished job, and carries out its plan; returns the exit code."""
    found = {"export": f"{job_dir}/export/2", **fields}
    report.write(job_dir, short_report(status="finished", **found))
    plan = DeployPlan.parse(f"--target=tfserving --output={job_dir}/served", conditions)
    return plan.carry_out(job_dir)


def served(job_dir):
    """Where the configuration of a deployed model is."""
    return pathlib.Path(job_dir, "served")


def test_a_model_that_is_good_enough_is_deployed(job_dir, caplog):
    caplog.set_level("INFO")
    assert finish(job_dir, ["auc>=0.8", "loss<0.5"]) == 0
    assert f"deploying {job_dir}/export/2" in caplog.text
    assert 'name: "clicks"' in (served(job_dir) / "models.config").read_text()


@pytest.mark.parametrize(
    ("conditions", "fields", "message"),
    [
        (["auc>=0.9"], {}, r"not deployed: auc of \S+/export/2 is 0.81, and --deploy_if=auc>=0.9"),
        (["loss<0.5", "mse<1"], {}, "not deployed: mse of .* is nan, and --deploy_if=mse<1"),
        ([], {"export_refused": "there"}, "not deployed: the model in there is worse than the new"),
    ],
)
def test_a_model_that_is_not_good_enough_is_not(job_dir, caplog, conditions, fields, message):
    assert finish(job_dir, conditions, **fields) == 0
    assert not served(job_dir).exists()
    assert any(re.search(message, line) for line in caplog.messages)


def test_a_deployment_that_fails_says_how_to_try_again(job_dir, caplog, capsys):
    served(job_dir).write_text("a file where the directory is to be")
    assert finish(job_dir) in (2, 3)
    assert "error: " in capsys.readouterr().err
    assert "not deployed; try again with python -m cloud.deploy --target=tfserving" in caplog.text
    assert f"--model={job_dir}/export/2" in caplog.text


@pytest.mark.parametrize(
    ("conditions", "train", "evaluates", "message"),
    [
        ([], {"export": "none"}, True, "--deploy_to with --export=none"),
        (["auc>0.5"], {}, False, "--deploy_if=auc>0.5 without --eval_data: nothing is measured"),
        (["mse<1"], {}, True, "--deploy_if=mse<1: there is no metric 'mse'; use one of loss, auc"),
        (["auc>0.5"], {}, True, None),
    ],
)
def test_a_run_that_could_deploy_nothing_is_refused(
    tmp_path, conditions, train, evaluates, message
):
    directory = str(tmp_path / "data")
    experiment = reused(dataset(directory, records=34)).experiment
    experiment = dataclasses.replace(
        experiment,
        data=Data(train=directory, eval=directory if evaluates else ""),
        train=dataclasses.replace(experiment.train, **train),
    )
    inputs = RunInputs.check(experiment, Cluster(), str(tmp_path / "job"), None)
    plan = DeployPlan.parse("--target=tfserving", conditions)
    if message is None:
        plan.check(inputs)
        return
    with pytest.raises(UserError, match=message):
        plan.check(inputs)
