"""The whole trainer: from records to a report, a checkpoint, a model and predictions."""

import csv
import dataclasses
import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest
from cluster_process import (
    PATIENCE,
    Program,
    assert_gone,
    checkpoints,
    local_cluster,
    read_report,
    trainer_flags,
)
from datasets_on_disk import UNEVEN, Datasets

from tfps.experiment import metrics

EPOCHS, BATCH = 2, 32  # of the smoke config
NONE = {"skipped": 0, "repeated": 0, "bad": 0}
STEPS_PER_EPOCH = sum(math.ceil(records / BATCH) for records in UNEVEN)


@dataclasses.dataclass(frozen=True)
class Done:
    """A run that has ended well.

    Attributes:
        job_dir: Its directory.
        report: Its report.
        lines: What the terminal showed.
        tasks: The launcher's tasks, as they were while it ran.
    """

    job_dir: pathlib.Path
    report: dict[str, Any]
    lines: list[str]
    tasks: dict[str, psutil.Process]


@pytest.fixture(name="cluster_run", scope="module")
def cluster_run_fixture(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Done:
    job_dir = tmp_path_factory.mktemp("cluster") / "job"
    flags = trainer_flags(datasets.uneven, job_dir, eval_data=datasets.eval)
    with local_cluster(2, 1, flags) as program:
        program.see(r"\[chief\] .*connected to 2 workers and 1 ps")
        tasks = program.tasks()
        assert program.finish() == 0, program.text
    return Done(job_dir, read_report(job_dir), program.lines, tasks)


def run_locally(datasets: Datasets, job_dir: pathlib.Path, *flags: str) -> Done:
    argv = trainer_flags(datasets.uneven, job_dir, *flags, eval_data=datasets.eval)
    with Program(*argv) as program:
        assert program.finish() == 0, program.text
    return Done(job_dir, read_report(job_dir), program.lines, {})


@pytest.fixture(name="local_run", scope="module")
def local_run_fixture(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run_locally(datasets, tmp_path_factory.mktemp("local") / "job", "--mode.name=local")


def assert_complete(done: Done, mode: str, workers: int, ps: int) -> None:
    report = done.report
    assert (report["format"], report["status"]) == (2, "finished")
    assert (report["mode"], report["config"]) == (mode, "smoke")
    assert report["cluster"] == {"workers": workers, "ps": ps}
    assert set(report["versions"]) == {"tfps", "tensorflow", "keras", "python"}
    assert report["batch_size"] == BATCH
    trained = EPOCHS * sum(UNEVEN)
    assert report["examples"] == {"per_epoch": sum(UNEVEN), "trained": trained, **NONE}
    assert report["bad_records"] == []
    # A step per batch, the last of a shard included however few records it holds.
    assert (report["epochs"], report["steps"]) == (EPOCHS, EPOCHS * STEPS_PER_EPOCH)
    assert report["seconds"] > 0
    assert report["examples_per_second"] > 0
    assert [e["epoch"] for e in report["evaluations"]] == [1, 2]
    place = {"epoch": 2, "steps": report["steps"]}
    assert report["evaluations"][-1] == {**place, **report["metrics"]}
    best = min(report["evaluations"], key=lambda evaluation: evaluation["loss"])
    assert report["best_evaluation"] == {"metric": "loss", **best}
    assert (report["stopped_early"], report["export_best"]) == (None, None)
    assert set(report["metrics"]) == {"loss", "auc", "accuracy"}
    assert 0.65 < report["metrics"]["auc"] < report["best_auc"] < 1
    assert 0.7 < report["metrics"]["accuracy"] < 1
    assert 0 < report["metrics"]["loss"] < math.log(2)
    assert report["failures"] == []
    assert report["resumed_from"] is None
    assert pathlib.Path(report["checkpoint"], "commit.json").is_file()
    assert report["checkpoints"]["saved"] == EPOCHS
    assert report["checkpoints"]["bytes"] > 1000
    assert report["passed_over"] == {}
    assert report["export"] == str(done.job_dir / "export" / "1")
    assert pathlib.Path(report["export"], "saved_model.pb").is_file()


def test_a_cluster_trains_every_record_of_uneven_shards(cluster_run: Done) -> None:
    assert_complete(cluster_run, "async", 2, 1)
    for epoch, commit in enumerate(checkpoints(cluster_run.job_dir), start=1):
        assert commit["queue"]["trained"] == epoch * sum(UNEVEN)
        assert commit["steps"] == epoch * STEPS_PER_EPOCH


def test_one_process_takes_the_same_flags(local_run: Done, cluster_run: Done) -> None:
    assert_complete(local_run, "local", 0, 0)
    assert set(local_run.report) == set(cluster_run.report)
    for name, tolerance in (("auc", 0.05), ("loss", 0.05), ("accuracy", 0.05)):
        ours, theirs = local_run.report["metrics"][name], cluster_run.report["metrics"][name]
        assert ours == pytest.approx(theirs, abs=tolerance), name


def test_every_task_has_ended(cluster_run: Done) -> None:
    names = ["chief 0", "ps 0", "worker 0", "worker 1"]
    assert sorted(cluster_run.tasks) == names
    assert_gone(list(cluster_run.tasks.values()))
    ports = re.findall(r"127\.0\.0\.1:(\d+)", cluster_run.lines[0])
    assert len(ports) == len(names)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), PATIENCE)


def test_the_terminal_shows_the_run(cluster_run: Done) -> None:
    own = re.compile(r"\[launcher\] |\[(chief|worker \d|ps \d)\] \d\d:\d\d:\d\d [a-z]")
    assert [line for line in cluster_run.lines if not own.match(line)] == []
    text = "\n".join(cluster_run.lines)
    for epoch in (1, 2):
        trained = f"{epoch * sum(UNEVEN):,}"
        assert f"epoch {epoch} of 2 trained: {trained} records so far" in text
        assert f"evaluation after epoch {epoch}: loss 0." in text
    logs = {path.stem for path in (cluster_run.job_dir / "logs").glob("*.log")}
    assert logs >= {"chief-0", "worker-0", "worker-1", "ps-0"}


def test_one_process_keeps_the_noise_from_the_terminal_too(local_run: Done) -> None:
    own = re.compile(r"\d\d:\d\d:\d\d [a-z]")
    assert [line for line in local_run.lines if not own.match(line)] == []
    assert (local_run.job_dir / "logs" / "chief-0.log").is_file()


def test_predictions_have_the_auc_of_the_report(
    cluster_run: Done, datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    output = tmp_path / "predictions.csv"
    argv = [f"--model={cluster_run.report['export']}", f"--data={datasets.eval}"]
    with Program(*argv, f"--output={output}", module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 501
    labels = np.array([int(row["label"]) for row in rows])
    predictions = np.array([float(row["prediction"]) for row in rows], np.float32)
    expected = cluster_run.report["metrics"]["auc"]
    assert metrics.auc(labels, predictions) == pytest.approx(expected, abs=1e-6)
    printed = re.search(r"AUC: (\S+)", program.text)
    assert printed
    assert float(printed[1]) == pytest.approx(expected, abs=1e-6)


SERVE = """
import glob, json, sys

for name in ("tfps", "trainer", "configs", "cloud", "keras", "tf_keras"):
    sys.modules[name] = None  # importing it raises, as where it is not installed

import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
[path] = glob.glob(sys.argv[2] + "/*00000-of-*.tfrecord")
serialized = tf.stack(list(tf.data.TFRecordDataset(path)))
features = tf.io.parse_example(serialized, {
    "numbers": tf.io.FixedLenFeature([4], tf.float32),
    "token": tf.io.FixedLenFeature([], tf.int64),
})
by_name = model.signatures["serving_default"](**features)["predictions"]
by_example = model.signatures["serving_examples"](examples=serialized)["predictions"]
print(json.dumps([by_name.numpy().tolist(), by_example.numpy().tolist()]))
"""


@pytest.mark.slow
def test_the_model_is_served_by_tensorflow_alone(
    cluster_run: Done, datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", SERVE, cluster_run.report["export"], str(datasets.eval)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    by_name, by_example = np.array(json.loads(done.stdout))
    assert by_name.shape == (167,)
    assert ((by_name > 0) & (by_name < 1)).all()
    np.testing.assert_array_equal(by_name, by_example)


@pytest.mark.slow
def test_a_seed_decides_everything_in_one_process(
    local_run: Done, datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    again = run_locally(datasets, tmp_path / "job")
    assert again.report["evaluations"] == local_run.report["evaluations"]


def test_a_finished_job_trains_nothing_more(
    local_run: Done, datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(local_run.job_dir, tmp_path / "job")
    again = run_locally(datasets, tmp_path / "job")
    assert any("all 2 epochs are trained already" in line for line in again.lines)
    assert not any("epoch 1 of" in line for line in again.lines)
    for field in ("status", "examples", "epochs", "steps", "metrics"):
        assert again.report[field] == local_run.report[field]
    assert any("job/export/1 has the model of" in line for line in again.lines)
    assert again.report["export"] == f"{tmp_path}/job/export/1"
    assert [path.name for path in (tmp_path / "job" / "export").iterdir()] == ["1"]


def test_a_run_that_goes_on_reports_what_is_trained_at_once(
    local_run: Done, datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    """Not only once it has saved a checkpoint of its own."""
    job_dir = tmp_path / "job"
    shutil.copytree(local_run.job_dir, job_dir)
    flags = trainer_flags(datasets.uneven, job_dir, "--mode.name=local", eval_data=datasets.eval)
    with Program(*flags, "--train.epochs=1000") as program:
        program.see("resuming from")
        report = read_report(job_dir)
        assert report["status"] == "running"
        assert report["examples"]["trained"] >= local_run.report["examples"]["trained"]
        assert report["epochs"] >= local_run.report["epochs"]
        assert report["steps"] >= local_run.report["steps"]
        assert report["checkpoint"] is not None


@pytest.mark.slow
def test_more_epochs_resume_from_the_checkpoint_on_another_cluster(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    """More workers than shards, and another number of ps than before."""
    flags = trainer_flags(datasets.two_shards, tmp_path / "job", "--train.epochs=1")
    with local_cluster(3, 1, flags) as program:
        assert program.finish() == 0, program.text
    report = read_report(tmp_path / "job")
    assert report["examples"] == {"per_epoch": 151, "trained": 151, **NONE}
    assert (report["steps"], report["metrics"]) == (6, {})
    checkpoint = report["checkpoint"]
    with local_cluster(1, 2, [*flags, "--train.epochs=3"]) as program:
        assert program.finish() == 0, program.text
    report = read_report(tmp_path / "job")
    assert report["examples"] == {"per_epoch": 151, "trained": 453, **NONE}
    assert (report["epochs"], report["steps"], report["resumed_from"]) == (3, 18, checkpoint)
    assert "epoch 2 of 3 trained: 302 records so far" in program.text
