"""From rows to predictions with every path on gs://, on a local cluster that is killed mid-run."""

import csv
import io
import json
import os
import re
import signal
import time

import pytest
import tensorflow as tf
from census_rows import census_rows
from cluster_process import PATIENCE, Program, local_cluster
from tensorboard_program import tensorboard

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tests.training_fixtures import dataset
from tfps.data import manifest

CENSUS, SMOKE = "--config=configs/census.py", "--config=configs/smoke.py"
pytestmark = pytest.mark.slow
ROOT = "gs://bucket/flow"
JOB_DIR = f"{ROOT}/job"


@pytest.fixture(autouse=True)
def empty_root(cloud):
    if tf.io.gfile.isdir(ROOT):
        tf.io.gfile.rmtree(ROOT)


def finish(program):
    with program:
        assert program.finish() == 0, program.text
        return program.text


def read_text(path):
    with tf.io.gfile.GFile(path) as file:
        return file.read()


def prepare(rows, shards):
    """Census rows on gs:// become a dataset there."""
    with tf.io.gfile.GFile(f"{ROOT}/rows.csv", "wb") as file:
        file.write(census_rows(rows, seed=0))
    paths = [f"--input={ROOT}/rows.csv", f"--output={ROOT}/data"]
    finish(Program(CENSUS, *paths, f"--shards={shards}", module="trainer.prepare"))


def training(config, *more):
    data = [f"--data.{kind}={ROOT}/data" for kind in ("train", "eval")]
    return [config, *data, f"--job_dir={JOB_DIR}", "--train.checkpoint_seconds=1", *more]


def wait_for_checkpoint():
    deadline = time.monotonic() + PATIENCE
    while not tf.io.gfile.glob(f"{JOB_DIR}/checkpoints/*/commit.json"):
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.2)


def train_with_a_kill(workers, flags):
    """Trains until everything is killed, then to the end; returns the report."""
    with local_cluster(workers, 1, flags) as program:
        program.see("connected to")
        wait_for_checkpoint()
        os.kill(program.pid, signal.SIGKILL)  # which ends every task
        program.finish()
    with local_cluster(workers, 1, flags) as program:
        program.see("epoch 1 of 2 trained")
        program.see("epoch 2 of 2 trained")
        program.see("exported the model")
        assert program.finish() == 0, program.text
    report = json.loads(read_text(f"{JOB_DIR}/report.json"))
    assert report["status"] == "finished"
    assert report["resumed_from"].startswith(f"{JOB_DIR}/checkpoints/")
    return report


def check_predictions(rows, report):
    output = f"{ROOT}/predictions.csv"
    paths = [f"--model={JOB_DIR}/export", f"--data={ROOT}/data", f"--output={output}"]
    said = finish(Program(*paths, module="trainer.predict"))
    assert f"{rows:,} records predicted" in said
    assert len(list(csv.DictReader(io.StringIO(read_text(output))))) == rows
    auc = float(said.partition("AUC: ")[2].split()[0])
    assert auc == pytest.approx(report["metrics"]["auc"], abs=1e-6)


def check_curves(report):
    """TensorBoard reads gs:// by itself; the page is beside the report."""
    with tensorboard(f"{JOB_DIR}/tensorboard", fast=False) as board:
        board.wait_for("train")
        board.wait_for("validation")
        for run, names in board.tags().items():
            for name in names:
                steps = [step for _, step, _ in board.curve(run, name)]
                assert steps == sorted(set(steps)), (run, name, steps)
        for name in report["metrics"]:
            shown = [(step, value) for _, step, value in board.curve("validation", f"epoch_{name}")]
            assert shown == [
                (row["epoch"] - 1, pytest.approx(row[name], rel=1e-6))
                for row in report["evaluations"]
            ]
        assert len(board.curve("train", "epoch_loss")) == report["epochs"]
    assert "Records per second" in read_text(f"{JOB_DIR}/report.html")


def test_train_from_gs_with_a_kill_and_predict_to_gs(cloud):
    dataset(f"{ROOT}/data", records=2000, shards=5)
    report = train_with_a_kill(1, training(SMOKE, "--train.epochs=2"))
    assert report["examples"]["trained"] == 4000
    assert report["examples"]["skipped"] == 0
    check_curves(report)
    check_predictions(2000, report)


def test_an_evaluator_follows_checkpoints_on_gs(cloud):
    dataset(f"{ROOT}/data", records=1000, shards=3)
    own = ["--workers=1", "--ps=1", "--evaluator", "--"]
    flags = training(SMOKE, "--train.epochs=2", "--train.keep_checkpoints=1")
    said = finish(Program(*own, *flags, module="cloud.local"))
    assert "the workers do it" not in said
    report = json.loads(read_text(f"{JOB_DIR}/report.json"))
    assert report["export_best"].startswith(f"{JOB_DIR}/export_best/")
    last = json.loads(read_text(max(tf.io.gfile.glob(f"{JOB_DIR}/evaluations/*.json"))))
    assert report["checkpoint"] == f"{JOB_DIR}/checkpoints/{last['checkpoint']}"
    assert (last["epoch"], last["records"], last["metrics"]) == (2, 1000, report["metrics"])
    assert tf.io.gfile.exists(f"{report['export_best']}/saved_model.pb")


def test_a_shard_replaced_during_the_run_ends_it_before_the_next_checkpoint(cloud):
    data = dataset(f"{ROOT}/replaced", records=2000, shards=5)
    path, generation = data.path_of(data.shards[1]), manifest.read(data.directory).shards[1]
    job_dir = f"{ROOT}/replaced_job"
    flags = [SMOKE, f"--data.train={data.directory}", f"--job_dir={job_dir}"]
    with Program(*flags, "--mode.name=local", "--train.epochs=1000") as program:
        program.see("epoch 1 of 1000 trained")
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        assert program.finish() == 3
    assert re.fullmatch(
        rf"error: {path} was replaced while it was trained on: its generation was "
        rf"{generation.generation}, now its generation is \d+\. .*",
        program.errors[0],
    )
    assert json.loads(read_text(f"{job_dir}/report.json"))["status"] == "failed"


def test_a_connection_that_stalls_for_good_ends_the_run(cloud):
    data = dataset(f"{ROOT}/stalled", records=200, shards=2)
    cloud.set(faults=(Fault("stall", ("read",), fraction=1.0, object=".tfrecord"),))
    flags = [SMOKE, f"--data.train={data.directory}", f"--job_dir={ROOT}/stalled_job"]
    limits = {"GCS_REQUEST_IDLE_TIMEOUT_SECS": "1", "GCS_RETRY_CONFIG_MAX_RETRIES": "2"}
    with Program(*flags, "--mode.name=local", environ=limits) as program:
        assert program.finish() == 3
    assert re.match(
        r"error: training epoch 1: shard \S+ cannot be read \(All 2 retry attempts failed",
        program.errors[0],
    )
    assert cloud.counted()["faults"]["stall"] >= 3


@pytest.mark.timeout(900)
def test_the_whole_census_flow_on_gs(cloud):
    prepare(32_561, 7)
    flags = training(CENSUS, "--train.epochs=2", "--train.batch_size=100")
    flags.append("--train.checkpoint_seconds=3")
    faults = (Fault("503", fraction=0.01), Fault("truncate", ("read",), next=3, skip=3))
    cloud.set(latency_seconds=0.05, bytes_per_second=1e8, faults=faults)
    report = train_with_a_kill(2, flags)
    assert cloud.counted()["faults"].keys() == {"503", "truncate"}
    assert report["examples"]["trained"] == 65_122
    assert report["examples"]["skipped"] == 0
    check_predictions(32_561, report)
    text = finish(Program(JOB_DIR, module="trainer.report"))
    assert f"{JOB_DIR}/report.json" in text
