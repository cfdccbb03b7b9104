"""Runs are kept where experiments are compared: by the services' own libraries."""

import json
import pathlib
import time

import mlflow
import pytest

from tests.monitoring.fake_metadata import FakeMetadata
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.monitoring.events import EpochTrained, Evaluated, RunBegan, RunEnded, Sampled
from tfps.monitoring.mlflow_tracker import MlflowTracker
from tfps.monitoring.tracker import TrackedRun
from tfps.monitoring.vertex_tracker import VertexTracker
from tfps.monitoring.wandb_tracker import WandbTracker
from tfps.storage.failures import StorageError

WAIT = 60.0


def began(**settings):
    return RunBegan(at=0.0, config="census", mode="async", workers=2, ps=1, settings=settings)


def sample(steps, loss):
    return Sampled(
        at=float(steps),
        epoch=0,
        examples=10 * steps,
        steps=steps,
        loss=loss,
        examples_per_second=7,
        judged={"auc": 0.625},
    )


def tell(run):
    """A run of an epoch, which went back once."""
    for event in (
        began(lr="0.1", epochs="2"),
        sample(10, 0.5),
        sample(20, 0.4),
        sample(10, 0.6),
        EpochTrained(
            at=30.0, epoch=0, steps=30, loss=0.45, learning_rate=0.1, steps_per_second=None
        ),
        Evaluated(at=31.0, epoch=1, steps=30, metrics={"auc": 0.75}, has_ended_epoch=True),
    ):
        run.tell(event)
    run.flush()


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return mlflow.MlflowClient()


def run_of(job_dir, service):
    return json.loads((pathlib.Path(job_dir) / "trackers" / f"{service}.json").read_text())["run"]


def test_mlflow_keeps_a_job_as_one_run(client, tmp_path):
    job_dir = JobDir(tmp_path / "job")
    tell(TrackedRun(MlflowTracker(), job_dir, "census"))
    run = run_of(job_dir, "mlflow")
    found = client.get_run(run)
    assert client.get_experiment(found.info.experiment_id).name == "census"
    assert (found.info.run_name, found.info.status) == ("job", "RUNNING")
    settings = {"lr": "0.1", "epochs": "2", "mode": "async", "workers": "2", "ps": "1"}
    assert found.data.params == settings
    losses = client.get_metric_history(run, "loss")
    assert [(each.step, each.value, each.timestamp) for each in losses] == [
        (10, 0.5, 10_000),
        (20, 0.4, 20_000),
        (10, 0.6, 10_000),
    ]
    assert found.data.metrics["evaluation/auc"] == 0.75
    assert found.data.metrics["progressive/auc"] == 0.625
    assert found.data.metrics["epoch_loss"] == 0.45
    again = TrackedRun(MlflowTracker(), job_dir, "census")
    again.tell(began(lr="0.2", epochs="2"))
    again.tell(sample(40, 0.3))
    again.tell(RunEnded(at=50.0, status="finished"))
    again.flush()
    assert run_of(job_dir, "mlflow") == run
    found = client.get_run(run)
    assert found.info.status == "FINISHED"
    assert found.data.params == settings
    assert found.data.tags["now.lr"] == "0.2"
    assert "now.epochs" not in found.data.tags


def test_a_service_that_cannot_be_reached_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"--track=mlflow cannot be used .*127\.0\.0\.1"):
        TrackedRun(MlflowTracker(), JobDir(tmp_path), "census")


def wait_for_content(path, texts):
    """Waits for a file whose writer, a process of its library's, is told to end, not waited for."""
    deadline = time.monotonic() + WAIT
    while missing := [text for text in texts if text not in path.read_bytes()]:
        assert time.monotonic() < deadline, f"{path} has no {missing}"
        time.sleep(0.05)


@pytest.mark.slow
def test_weights_and_biases_keeps_a_job_as_one_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    job_dir = JobDir(tmp_path / "job")
    for _ in range(2):
        run = TrackedRun(WandbTracker(), job_dir, "census")
        tell(run)
        run.tell(RunEnded(at=50.0, status="finished"))
        run.flush()
    kept = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert {path.name for path in kept} == {f"run-{run_of(job_dir, 'wandb')}.wandb"}
    texts = b"evaluation/auc", b"0.75", b"epoch_loss", b"0.45", b"lr", b"census"
    for path in kept:
        wait_for_content(path, texts)


PLACE = "projects/my-project/locations/europe-west4/metadataStores/default/contexts"


@pytest.fixture(name="metadata")
def metadata_fixture(monkeypatch):
    monkeypatch.setenv("CLOUD_ML_PROJECT_ID", "my-project")
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    with FakeMetadata() as metadata:
        yield metadata


def test_vertex_experiments_keep_a_job_as_one_run(tmp_path, metadata):
    job_dir = JobDir(tmp_path / "My job")
    first = TrackedRun(VertexTracker(metadata.client()), job_dir, "census")
    tell(first)
    first.flush()
    run = run_of(job_dir, "vertex")
    assert run.startswith(f"{PLACE}/census-my-job-")
    assert metadata.children == {f"{PLACE}/census": [run]}
    titles = {each.schema_title: each.display_name for each in metadata.contexts.values()}
    assert titles["system.Experiment"] == "census"
    assert titles["system.ExperimentRun"] == run.removeprefix(f"{PLACE}/census-")
    kept = metadata.metadata(run)
    assert kept["_state"] == "RUNNING"
    assert kept["_params"] == {
        "lr": "0.1",
        "epochs": "2",
        "mode": "async",
        "workers": "2",
        "ps": "1",
    }
    assert kept["_metrics"]["evaluation/auc"] == 0.75
    assert kept["_metrics"]["loss"] == 0.6
    again = TrackedRun(VertexTracker(metadata.client()), job_dir, "census")
    again.tell(began(lr="0.2"))
    again.tell(sample(30, float("nan")))
    again.tell(sample(40, 0.3))
    again.tell(RunEnded(at=50.0, status="finished"))
    metadata.failures = 2  # of one entry and the next
    with pytest.raises(StorageError, match="ServiceUnavailable"):
        again.flush()
    again.flush()
    kept = metadata.metadata(run)
    assert (kept["_state"], kept["_params"]["lr"], kept["_params"]["epochs"]) == (
        "COMPLETE",
        "0.2",
        "2",
    )
    assert (kept["_metrics"]["loss"], kept["_metrics"]["updates"]) == (0.3, 40)
    other = TrackedRun(VertexTracker(metadata.client()), JobDir(tmp_path / "other"), "census")
    other.flush()
    assert len(metadata.contexts) == 3
    with pytest.raises(UserError, match=r"a-long-name-.* is longer than 117 characters"):
        TrackedRun(
            VertexTracker(metadata.client()), JobDir(tmp_path / "third"), 20 * "a long name "
        )


def test_vertex_experiments_need_a_project(monkeypatch):
    for variable in ("CLOUD_ML_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match="the project is not known; set GOOGLE_CLOUD_PROJECT"):
        VertexTracker()


class Service:
    """A service that does not answer for a while."""

    name = "service"

    def __init__(self, failures):
        self.failures, self.kept = failures, []

    def connect(self, experiment, title, known):
        return known or "7"

    def describe(self, settings):
        self.kept.append(settings["mode"])

    def log(self, step, at, values):
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no route\nto host")
        self.kept.append(step)

    def end(self, has_finished):
        self.kept.append(has_finished)


def test_what_a_service_does_not_take_is_told_again(tmp_path):
    service = Service(failures=1)
    run = TrackedRun(service, JobDir(tmp_path), "census")
    run.tell(began())
    run.tell(sample(10, None))
    run.tell(RunEnded(at=1.0, status="failed"))
    with pytest.raises(StorageError, match="ConnectionError: no route to host"):
        run.flush()
    run.flush()
    assert service.kept == ["async", 10, False]


def test_an_entry_that_a_service_never_takes_holds_up_no_other(tmp_path, caplog):
    class Picky(Service):
        def log(self, step, at, values):
            if step == 10:
                raise ValueError("no such name")
            super().log(step, at, values)

    service = Picky(failures=1)
    run = TrackedRun(service, JobDir(tmp_path), "census")
    for step in (10, 20, 30):
        run.tell(sample(step, None))
    with pytest.raises(StorageError, match="ValueError: no such name"):
        run.flush()  # the service did not answer either
    run.flush()
    assert service.kept == [20, 30]
    assert "service refuses an entry: ValueError: no such name" in caplog.text
    run.tell(sample(10, None))
    for _ in range(9):  # nothing else says that it is there
        with pytest.raises(StorageError):
            run.flush()


def test_a_damaged_name_of_a_run_is_no_new_run(tmp_path):
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "service.json").write_text("{")
    with pytest.raises(UserError, match=r"service\.json is damaged"):
        TrackedRun(Service(0), JobDir(tmp_path), "census")
