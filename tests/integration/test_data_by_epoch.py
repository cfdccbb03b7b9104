"""Runs whose epochs train other data each."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from cluster_process import checkpoints, local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task
from tfps.data import manifest
from tfps.data.manifest import Manifest

SIZES = {"1": (300, 200), "2": (700, 1), "3": (50, 30, 20), "4": (900,)}  # of shards, by day
TASK = counting_task.CountingTask(records=1000, step_seconds=0.25)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def job(root: pathlib.Path, days: str, epochs: int, *more: str) -> list[str]:
    """The flags of a job that trains some days, one after the other."""
    named = ",".join(str(root / day) for day in days)
    own = (f"--data.train={named}", f"--train.epochs={epochs}", *more)
    settings = ("--train.batch_size=20", "--train.keep_checkpoints=1000")
    return flags(data(root, "1"), root / "job", TASK, *settings, *own)


def data(root: pathlib.Path, day: str) -> Manifest:
    return manifest.read(str(root / day))


def expected(days: str) -> np.ndarray[Any, Any]:
    """How often each record is trained by epochs of these days."""
    return np.sum([np.arange(TASK.records) < sum(SIZES[day]) for day in days], axis=0)


@pytest.fixture(name="root")
def root_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    for day, sizes in SIZES.items():
        counting_task.write(tmp_path / day, TASK, sizes)
    return tmp_path


def test_each_epoch_trains_its_own_data_whoever_dies_and_other_days_follow(
    root: pathlib.Path,
) -> None:
    seconds = ("--train.checkpoint_seconds=1", "--progress_seconds=0.2")
    with local_cluster(2, 2, job(root, "123", 4, *seconds)) as program:
        program.see(r"\[chief\] .* epoch 2/4: [1-9]\d* of 701 records")
        program.tasks()["ps 1"].kill()
        program.see(r"\[chief\] .* epoch 3/4: .* of 100 records")
        program.tasks()["chief 0"].kill()
        assert program.finish() == 0, program.text
    [state] = [x["queue"] for x in checkpoints(root / "job")][-1:]
    assert (state["epoch"], state["cursor"]) == (4, 0)
    total = expected("1231")
    examples = read_report(root / "job")["examples"]
    repeated = examples.pop("repeated")
    assert examples == {"per_epoch": 500, "trained": total.sum(), "skipped": 0, "bad": 0}
    counted = trained(data(root, "1"), TASK, root / "job", epoch=4)
    assert np.all(counted >= total)
    assert counted.sum() - total.sum() <= repeated

    with local_cluster(1, 1, job(root, "12314", 5)) as program:  # a new day, the days before
        program.see(r"\[chief\] .*epoch 5 of 5 trained on .*/4: ")
        assert program.finish() == 0, program.text
    after = trained(data(root, "1"), TASK, root / "job", epoch=5)
    np.testing.assert_array_equal(after - counted, expected("4"))

    with local_cluster(1, 1, job(root, "4231", 6)) as program:
        program.see("train data of epoch 1 records was 500, is 900")
        assert program.finish() == 2, program.text


def test_replicas_train_the_data_of_each_epoch(root: pathlib.Path) -> None:
    task = dataclasses.replace(TASK, step_seconds=0.0)
    own = (f"--data.train={root}/{{epoch}}", "--train.epochs=3", "--mode.name=allreduce")
    argv = flags(data(root, "1"), root / "job", task, "--train.batch_size=20", *own)
    with local_cluster(2, 0, argv) as program:
        assert program.finish() == 0, program.text
    total = expected("123")
    report = read_report(root / "job")
    zero = {"skipped": 0, "repeated": 0, "bad": 0}
    assert report["examples"] == {"per_epoch": 100, "trained": total.sum(), **zero}
