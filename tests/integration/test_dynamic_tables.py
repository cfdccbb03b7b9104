"""Tables without vocabularies: trained, evaluated, exported, restored, and their tasks killed."""

import csv
import dataclasses
import os
import pathlib
import random
import time
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf
from cluster_process import Program, local_cluster, read_report, wait_for_checkpoint

from tests import raw_keys
from tfps.experiment.metrics import auc

LONG = 400  # seconds that a run may take on a busy machine
RECORDS, EVAL_RECORDS, EPOCHS = 8_000, 4_000, 2
TABLES = ("users", "pages", "items")
KILLS = int(os.environ.get("TFPS_KILLS", "4")) // 4  # `make kills` says how many kills


@dataclasses.dataclass(frozen=True)
class Data:
    """Two datasets."""

    train: pathlib.Path
    eval: pathlib.Path

    def flags(self, job_dir: pathlib.Path, *more: str) -> list[str]:
        return [
            "--config=tests/raw_keys.py",
            f"--data.train={self.train}",
            f"--data.eval={self.eval}",
            f"--job_dir={job_dir}",
            *more,
        ]


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory: pytest.TempPathFactory) -> Data:
    directory = tmp_path_factory.mktemp("raw")
    raw_keys.write(directory / "train", RECORDS, 1)
    raw_keys.write(directory / "eval", EVAL_RECORDS, 2)
    return Data(directory / "train", directory / "eval")


def hashes(job_dir: pathlib.Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Of the rows in the checkpoint of a report: their hashes, and each one's table."""
    checkpoint = pathlib.Path(read_report(job_dir)["checkpoint"])
    [index] = checkpoint.glob("*.index")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    group = "keys_dim4"
    return reader.get_tensor(f"{group}/hashes"), reader.get_tensor(f"{group}/records")[:, 0]


def check(job_dir: pathlib.Path, epochs: int = EPOCHS) -> dict[str, Any]:
    """Checks that every record was trained and each key has one row; returns the report."""
    report = read_report(job_dir)
    assert report["status"] == "finished"
    examples = report["examples"]
    assert (examples["trained"], examples["skipped"]) == (epochs * RECORDS, 0)
    found, tables = hashes(job_dir)
    assert (found[1:] > found[:-1]).all()
    rows = np.bincount(tables, minlength=3).tolist()
    assert rows == [raw_keys.USERS, raw_keys.PAGES, raw_keys.ITEMS]
    keys = report["keys"]
    assert [keys[f"{table}/table/embeddings"]["rows"] for table in TABLES] == rows
    return report


@pytest.fixture(name="local_job", scope="module")
def local_job_fixture(data: Data, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    job_dir = tmp_path_factory.mktemp("local") / "job"
    with Program(*data.flags(job_dir, "--mode.name=local")) as program:
        assert program.finish(LONG) == 0, program.text
    return job_dir


@pytest.mark.slow
def test_one_process_trains_numbers_strings_and_bags(local_job: pathlib.Path) -> None:
    report = check(local_job)
    # What the labels were drawn from has an AUC of 0.85.
    assert report["metrics"]["auc"] > 0.75


@pytest.mark.slow
def test_what_is_exported_predicts_as_the_evaluation_did(
    data: Data, local_job: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    output = tmp_path / "predictions.csv"
    report = read_report(local_job)
    argv = [f"--model={report['export']}", f"--data={data.eval}", f"--output={output}"]
    with Program(*argv, module="trainer.predict") as program:
        assert program.finish(LONG) == 0, program.text
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == EVAL_RECORDS
    labels = np.array([int(row["label"]) for row in rows])
    predictions = np.array([float(row["prediction"]) for row in rows], np.float32)
    assert auc(labels, predictions) == pytest.approx(report["metrics"]["auc"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(3 * LONG)
@pytest.mark.parametrize("is_narrow", [False, True])
def test_a_job_goes_on_on_another_number_of_ps(
    data: Data, tmp_path: pathlib.Path, is_narrow: bool
) -> None:
    job_dir = tmp_path / "job"
    aucs = []
    for epochs, ps in enumerate((2, 1, 3), start=1):
        argv = data.flags(job_dir, f"--train.epochs={epochs}")
        argv.append(f"--task.is_narrow={is_narrow}")
        with local_cluster(1, ps, argv) as program:
            assert program.finish(LONG) == 0, program.text
        aucs.append(check(job_dir, epochs)["metrics"]["auc"])
    assert aucs[-1] > aucs[0]


@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("job", ["worker", "ps", "chief"])
def test_a_killed_task_loses_no_key(
    data: Data, tmp_path: pathlib.Path, job: str, seed: int
) -> None:
    draw = random.Random(seed)
    job_dir = tmp_path / "job"
    argv = data.flags(job_dir, "--train.checkpoint_seconds=0.5", "--progress_seconds=0.2")
    # So that it is still training then.
    argv += ["--train.epochs=6", "--train.batch_size=16"]
    argv.append(f"--task.is_narrow={bool(seed % 2)}")
    own = ["--workers=2", "--ps=2", "--max_restarts=3"]
    with Program(*own, "--", *argv, module="cloud.local") as program:
        wait_for_checkpoint(job_dir)
        time.sleep(draw.uniform(0.0, 2.0))
        tasks = {name: task for name, task in program.tasks().items() if name.startswith(job)}
        victim: psutil.Process = tasks[draw.choice(sorted(tasks))]
        victim.kill()
        assert program.finish(LONG) == 0, program.text
    assert "was killed by SIGKILL" in program.text
    check(job_dir, 6)


@pytest.mark.slow
def test_a_table_that_is_full_goes_on(data: Data, tmp_path: pathlib.Path) -> None:
    """Of 300 users 100 have a row, whichever came last."""
    job_dir = tmp_path / "job"
    with Program(*data.flags(job_dir, "--mode.name=local", "--task.max_rows=100")) as program:
        assert program.finish(LONG) == 0, program.text
    found, tables = hashes(job_dir)
    assert len(np.unique(found)) == len(found)
    rows = np.bincount(tables, minlength=3)
    assert (rows <= 100).all()
    assert (rows >= 95).all()
    keys = read_report(job_dir)["keys"]
    for table, count in zip(TABLES, rows, strict=True):
        counts = keys[f"{table}/table/embeddings"]
        assert counts["rows"] == count
        assert counts["admitted"] - counts["evicted"] == count
