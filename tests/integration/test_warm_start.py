"""Jobs of clusters that begin with what another job has learnt."""

import pathlib
import shutil

import numpy as np
import pytest
from cluster_process import Program, local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task

RECORDS, BATCH, STEP_SECONDS = 1000, 20, 0.25
BATCHES = f"--train.batch_size={BATCH}"
FIRST, SECOND = (300, 200), (600, 400)  # records per shard of two days


def two_days(directory, task):
    """The data of a job, and of another that resumes from it."""
    return (
        counting_task.write(directory / "first", task, FIRST),
        counting_task.write(directory / "second", task, SECOND),
    )


@pytest.mark.slow
def test_a_job_goes_on_with_another_s_parameters_on_other_data(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=RECORDS, step_seconds=STEP_SECONDS)
    first, second = two_days(tmp_path, task)
    before, after = tmp_path / "before" / "job", tmp_path / "after" / "job"
    with local_cluster(2, 2, flags(first, before, task, BATCHES)) as program:
        assert program.finish() == 0, program.text
    begun = read_report(before)
    own = (f"--train.init_from={before}", "--progress_seconds=0.2", BATCHES)

    def go_on() -> Program:
        return local_cluster(2, 1, flags(second, after, task, *own))

    steps, taken = sum(FIRST) // BATCH, "all parameters and slots"
    with go_on() as program:
        program.see(rf"\[chief\] .*taken from {begun['checkpoint']}: {taken}, {steps} steps")
        program.see(r"\[chief\] .* epoch 1/1: [1-9][\d,]* of 1,000 records")
        seen = len(program.lines)
        program.tasks()["ps 0"].kill()  # there is no checkpoint to go back to
        program.see(rf"\[chief\] .*taken from .*: {taken}", seen)
        assert program.finish() == 0, program.text
    report = read_report(after)
    assert (report["init_from"], report["resumed_from"]) == (begun["checkpoint"], None)
    assert {**report["examples"], "repeated": 0} == {
        "per_epoch": RECORDS,
        "trained": RECORDS,
        "skipped": 0,
        "repeated": 0,
        "bad": 0,
    }
    assert (report["epochs"], report["steps"]) == (1, steps + RECORDS // BATCH)
    counted = trained(second, task, after, epoch=1)
    twice = np.arange(RECORDS) < sum(FIRST)
    np.testing.assert_array_equal(counted, np.where(twice, 2, 1))
    shutil.rmtree(before)  # what a job has begun with it does not ask for again
    with go_on() as program:
        assert program.finish() == 0, program.text
    assert read_report(after)["init_from"] == begun["checkpoint"]


@pytest.mark.slow
def test_a_job_takes_one_layer_of_another_s_on_another_number_of_ps(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=RECORDS)
    first, second = two_days(tmp_path, task)
    before, after = tmp_path / "before" / "job", tmp_path / "after" / "job"
    with local_cluster(1, 2, flags(first, before, task, BATCHES)) as program:
        assert program.finish() == 0, program.text
    own = (f"--train.init_from={before}", "--train.init_layers=count*", BATCHES)
    with local_cluster(2, 3, flags(second, after, task, *own)) as program:
        program.see(r"\[chief\] .*taken from .*counted")
        assert program.finish() == 0, program.text
    report = read_report(after)
    assert report["init_from"] == read_report(before)["checkpoint"]
    assert report["steps"] == RECORDS // BATCH  # they begin again
    counted = trained(second, task, after, epoch=1)
    np.testing.assert_array_equal(counted, np.where(np.arange(RECORDS) < sum(FIRST), 2, 1))
