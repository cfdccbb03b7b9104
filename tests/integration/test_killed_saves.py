"""A whole job killed around its saves, again and again: its job_dir always resumes."""

import os
import pathlib
import random
import signal
import time

import pytest
from cluster_process import assert_gone, checkpoints, local_cluster, read_report, trainer_flags
from datasets_on_disk import Datasets

KILLS = int(os.environ.get("TFPS_KILLS", "12"))  # `make kills` says how many
RECORDS = 151
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def test_a_job_killed_around_its_saves_always_resumes(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    """Epochs are short and parameters many (100 MB), so that most of the time goes into saves.

    Half of them are a table's, of which few rows are touched: of three lives, one saves everything
    and two save increments.
    """
    job_dir = tmp_path / "job"
    size = ("--task.dim=4096", "--task.units=1000")
    flags = trainer_flags(datasets.two_shards, job_dir, *size)
    draw = random.Random(6)
    trained = unfinished = 0
    resumed_from = {True: 0, False: 0}
    for life in range(KILLS):
        largest = f"--train.largest_increment={0.6 if life % 3 else 0.0}"
        with local_cluster(1, 2, [*flags, largest, "--train.epochs=100000"]) as program:
            if life:
                resumed = program.see(r"resuming from .*: (\S+) records trained")[1]
                assert int(resumed.replace(",", "")) == trained
            program.see(r"\[chief\] .*saved ")
            time.sleep(draw.uniform(0.0, 0.6))
            tasks = list(program.tasks().values())
            os.kill(program.pid, signal.SIGKILL)  # which ends every task
            assert program.finish() == -signal.SIGKILL
            assert_gone(tasks)
        assert program.errors == []
        assert read_report(job_dir)["passed_over"] == {}
        newest = checkpoints(job_dir)[-1]
        trained = newest["queue"]["trained"]
        resumed_from[newest["increment"] is not None] += 1
        directories = list((job_dir / "checkpoints").iterdir())
        unfinished += sum(not (path / "commit.json").exists() for path in directories)
    print(f"{unfinished} of {KILLS} kills came in the middle of a save")
    print(f"{resumed_from[True]} lives began with an increment")
    # Of few kills it may be that few come at such a moment.
    least = KILLS // 5 if KILLS >= 50 else 1
    assert unfinished >= least
    assert min(resumed_from.values()) >= least
    epochs = trained // RECORDS + 2
    with local_cluster(1, 2, [*flags, f"--train.epochs={epochs}"]) as program:
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    trained = epochs * RECORDS
    assert report["examples"] == {
        "per_epoch": RECORDS,
        "trained": trained,
        "skipped": 0,
        "repeated": 0,
        "bad": 0,
    }
