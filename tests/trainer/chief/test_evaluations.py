"""A chief's evaluations, in runs of one process."""

import dataclasses
import io
import json

import pytest

from tests import frozen
from tests.training_fixtures import dataset, inputs_of
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.evaluation.history import Evaluations
from tfps.experiment.experiment import Data
from tfps.job_dir import JobDir, report
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay

WITH_EVALUATOR = Cluster(evaluators=("nowhere:1",))
EPOCHS = 9


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    dataset(directory / "train", records=70)
    dataset(directory / "other", records=50)
    return directory


def train(data, job_dir, cluster=None, eval_data="train", **settings):
    """Runs a model that cannot improve; returns the report."""
    experiment = frozen.get_config()
    experiment = dataclasses.replace(
        experiment,
        data=Data(train=str(data / "train"), eval=str(data / eval_data) if eval_data else ""),
        train=dataclasses.replace(experiment.train, **{"epochs": EPOCHS, **settings}),
    )
    inputs = inputs_of(experiment, job_dir, cluster)
    display = ProgressDisplay(io.StringIO(), False)
    limits = WaitLimits(task_wait_seconds=0.2)
    run(inputs, limits, Interruption(grace_seconds=0.0), display, Monitoring())
    return report.read(JobDir(job_dir))


@pytest.mark.slow
def test_a_model_that_cannot_improve_is_stopped_and_stays_so(data, tmp_path):
    done = train(data, tmp_path, early_stopping=2)
    assert (done["status"], done["epochs"]) == ("finished", 3)
    assert [entry["epoch"] for entry in done["evaluations"]] == [1, 2, 3]
    assert len({entry["loss"] for entry in done["evaluations"]}) == 1
    loss = done["metrics"]["loss"]
    assert done["stopped_early"] == (
        f"loss has not become better than {loss:.4f} (epoch 1, {done['steps'] // 3} steps) in 2 "
        "evaluations"
    )
    assert done["best_evaluation"] == {"metric": "loss", **done["evaluations"][0]}
    assert [x.records for x in Evaluations(JobDir(tmp_path)).all()] == [70] * 3

    again = train(data, tmp_path, early_stopping=2)
    for field in ("status", "epochs", "steps", "metrics", "evaluations", "stopped_early"):
        assert again[field] == done[field], field


@pytest.mark.slow
def test_a_trial_reports_every_evaluation(data, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUD_ML_TRIAL_ID", "3")
    monkeypatch.setenv("CLOUD_ML_HP_METRIC_FILE", str(tmp_path / "metrics"))
    done = train(data, tmp_path / "job", epochs=2)
    found = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    losses = [(entry["trial"], entry["loss"]) for entry in found if "loss" in entry]
    assert losses == [("3", str(x["loss"])) for x in done["evaluations"]]
    assert len(losses) == 2


@pytest.mark.slow
def test_evaluations_on_other_data_are_made_again(data, tmp_path, caplog):
    caplog.set_level("INFO")
    train(data, tmp_path, epochs=1)
    done = train(data, tmp_path, epochs=2, eval_data="other")
    assert "deleted 1 evaluations: of other data" in caplog.text
    assert [(x.epoch, x.records) for x in Evaluations(JobDir(tmp_path)).all()] == [(1, 50), (2, 50)]
    assert [entry["epoch"] for entry in done["evaluations"]] == [1, 2]
    assert done["stopped_early"] is None


def test_the_chief_evaluates_itself_what_an_evaluator_does_not(data, tmp_path, caplog):
    done = train(data, tmp_path, WITH_EVALUATOR, epochs=2)
    assert "evaluator 0 (nowhere:1) has not evaluated" in caplog.text
    assert "within 0 s: the workers do it now" in caplog.text
    assert (done["status"], done["export_best"]) == ("finished", None)
    [evaluation] = Evaluations(JobDir(tmp_path)).all()
    assert (evaluation.epoch, evaluation.records) == (2, 70)
    assert done["metrics"] == evaluation.metrics


def exported(job_dir, place="export"):
    """The versions that a job has exported: the checkpoint of each, by its name."""
    found = {}
    for path in (job_dir / place).glob("*/schema.json"):
        found[path.parent.name] = json.loads(path.read_text())["checkpoint"]
    return found


@pytest.mark.slow
def test_the_model_that_is_wanted_is_exported(data, tmp_path):
    """All evaluations measure the same, and of equals the first is the best."""
    for choice in ("best", "none"):
        done = train(data, tmp_path / choice, epochs=2, export=choice)
        first, _ = (x.checkpoint for x in Evaluations(JobDir(tmp_path / choice)).all())
        wanted = {"1": first} if choice == "best" else {}
        assert exported(tmp_path / choice) == wanted
        assert done["export"] == (f"{tmp_path / choice}/export/1" if wanted else None)
        assert done["status"] == "finished"


@pytest.mark.slow
def test_each_run_exports_a_version_and_old_ones_go(data, tmp_path):
    for epochs in (1, 2):
        done = train(data, tmp_path, epochs=epochs, keep_exports=1)
    assert exported(tmp_path) == {"2": Evaluations(JobDir(tmp_path)).all()[1].checkpoint}
    assert done["export"] == f"{tmp_path}/export/2"
    assert train(data, tmp_path, epochs=2)["export"] == done["export"]  # it has that model already
    assert set(exported(tmp_path)) == {"2"}
    train(data, tmp_path, epochs=2, keep_exports=1, export_dtype="int8")
    assert set(exported(tmp_path)) == {"3"}


@pytest.mark.slow
def test_versions_are_exported_while_a_run_trains(data, tmp_path):
    done = train(data, tmp_path, epochs=3, export_seconds=1e-3, keep_exports=9, keep_checkpoints=9)
    found = [x.checkpoint for x in Evaluations(JobDir(tmp_path)).all()]
    versions = exported(tmp_path)
    assert versions["1"] == found[0]
    assert versions[str(len(versions))] == found[2]
    assert 2 <= len(versions) <= 3
    assert done["export"] == f"{tmp_path}/export/{len(versions)}"


@pytest.mark.slow
def test_a_model_that_does_not_meet_a_condition_becomes_no_version(data, tmp_path, caplog):
    """The loss of the version before is made much better, where it stands."""
    none = train(data, tmp_path, epochs=1, export_if=("loss<0.01",))
    assert f", but train.export_if=loss<0.01: the model is exported to {tmp_path}" in caplog.text
    assert set(exported(tmp_path)) == {"refused"}
    assert (none["export"], none["export_refused"]) == (None, f"{tmp_path}/export/refused")
    first = train(data, tmp_path, epochs=2, export_if=("loss<=newest+0.05", "loss>0.01"))
    path = tmp_path / "export" / "1" / "schema.json"
    schema = json.loads(path.read_text())
    assert schema["metrics"].items() >= first["metrics"].items()
    schema["metrics"]["loss"] -= 0.1
    path.write_text(json.dumps(schema))
    refused = train(data, tmp_path, epochs=3, export_if=("loss<=newest+0.05",))
    assert "train.export_if=loss<=newest+0.05: the model is exported to" in caplog.text
    assert set(exported(tmp_path)) == {"1", "refused"}
    assert (refused["export"], refused["export_refused"]) == (
        first["export"],
        f"{tmp_path}/export/refused",
    )


def test_what_needs_evaluations_is_refused_without(data, tmp_path):
    for name, value in (("export", "best"), ("export_if", ("loss<1",))):
        experiment = frozen.get_config()
        experiment = dataclasses.replace(
            experiment,
            data=Data(train=str(data / "train")),
            train=dataclasses.replace(experiment.train, **{name: value}),
        )
        said = "best" if value == "best" else "loss<1"
        with pytest.raises(UserError, match=f"{name}={said} without --data.eval; name eval"):
            inputs_of(experiment, tmp_path)


@pytest.mark.slow
def test_what_is_judged_before_it_is_learnt_needs_no_evaluations(data, tmp_path, caplog):
    done = train(data, tmp_path, eval_data="", epochs=2, export_if=("progressive_auc>=2",))
    assert "progressive_auc is 0." in caplog.text
    assert ", but train.export_if=progressive_auc>=2" in caplog.text
    assert (done["export"], done["export_refused"]) == (None, f"{tmp_path}/export/refused")
    schema = json.loads((tmp_path / "export" / "refused" / "schema.json").read_text())
    names = {f"progressive_{name}" for name in ("auc", "log_loss", "calibration")}
    assert set(schema["metrics"]) == names


def test_an_export_meanwhile_is_of_the_newest_checkpoint(data, tmp_path):
    with pytest.raises(UserError, match="export_seconds=9 exports the newest checkpoint"):
        train(data, tmp_path, export_seconds=9.0, export="best")
