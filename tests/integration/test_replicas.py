"""Runs without ps: chief and workers train as equal replicas, and outlive each other."""

import os
import pathlib
import random
import re
import signal

import pytest
from cluster_process import (
    Program,
    assert_gone,
    checkpoints,
    local_cluster,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from datasets_on_disk import UNEVEN, Datasets

EPOCHS = 2
RECORDS = 12_000
SMALL = ("--mode.name=allreduce", "--train.batch_size=16", "--train.checkpoint_seconds=0.5")
EXACT = {"trained": EPOCHS * RECORDS, "skipped": 0, "repeated": 0, "bad": 0, "per_epoch": RECORDS}


@pytest.fixture(name="flags")
def flags_fixture(datasets: Datasets, job_dir: pathlib.Path) -> list[str]:
    return trainer_flags(datasets.long, job_dir, *SMALL)


def test_a_run(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = trainer_flags(
        datasets.uneven, job_dir, "--mode.name=allreduce", eval_data=datasets.eval
    )
    with local_cluster(1, 0, flags) as program:
        program.see(r"\[chief\] .*together with 1 other replicas")
        tasks = program.tasks()
        assert program.finish() == 0, program.text
        assert_gone(list(tasks.values()))
    assert program.errors == []
    report = read_report(job_dir)
    assert (report["status"], report["mode"]) == ("finished", "allreduce")
    trained = EPOCHS * sum(UNEVEN)
    expected = {"trained": trained, "skipped": 0, "repeated": 0, "bad": 0}
    assert report["examples"] == {"per_epoch": sum(UNEVEN), **expected}
    assert sum(share["records"] for share in report["workers"]) == trained
    assert all(share["records"] > trained // 3 for share in report["workers"])
    # A round has 64 records, fewer where a lease ends.
    assert trained // 64 < report["steps"] < 2 * trained // 64
    assert [each["epoch"] for each in report["evaluations"]] == [1, 2]
    assert report["metrics"]["auc"] > 0.6
    assert (job_dir / "export" / "1" / "saved_model.pb").is_file()
    assert checkpoints(job_dir)[-1]["steps"] == report["steps"]


@pytest.mark.slow
def test_one_process_goes_on_with_the_checkpoint(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = trainer_flags(datasets.uneven, job_dir)
    with local_cluster(1, 0, [*flags, "--mode.name=allreduce"]) as program:
        assert program.finish() == 0, program.text
    steps = read_report(job_dir)["steps"]
    with Program(*flags, "--mode.name=local", "--train.epochs=3") as program:
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert report["examples"]["trained"] == 3 * sum(UNEVEN)
    assert report["steps"] > steps
    assert report["resumed_from"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_replica(flags: list[str], job_dir: pathlib.Path, seed: int) -> None:
    victim = random.Random(seed).choice(["chief 0", "worker 0", "worker 1"])
    with local_cluster(2, 0, flags) as program:
        wait_for_checkpoint(job_dir)
        tasks = program.tasks()
        tasks[victim].kill()
        program.see(r"was killed by SIGKILL; restart 1 of 3")
        program.see(r"\[(chief|worker \d)\] .*beginning again, from the last checkpoint")
        resumed = program.see(r"resuming from .*: (\S+) records trained")[1]
        kept = program.tasks()
        assert program.finish() == 0, program.text
        assert_gone([*tasks.values(), *kept.values()])
    # The others began again under their process ids.
    assert all(kept[name].pid == task.pid for name, task in tasks.items() if name != victim)
    report = read_report(job_dir)
    assert 0 < int(resumed.replace(",", "")) < EPOCHS * RECORDS
    assert report["examples"] == EXACT
    if victim != "chief 0":
        [recovery] = report["recoveries"]
        assert "was lost" in recovery["what"]
        assert recovery["seconds"] > 0


@pytest.mark.slow
def test_a_worker_that_is_asked_to_end(flags: list[str], job_dir: pathlib.Path) -> None:
    with local_cluster(2, 0, flags) as program:
        wait_for_checkpoint(job_dir)
        os.kill(program.tasks()["worker 1"].pid, signal.SIGTERM)
        program.see(r"\[chief\] .*worker 1 left, after a checkpoint; beginning again")
        program.see(r"\[launcher\] worker 1 ended with exit code 143; restart 1 of 3")
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert report["examples"] == EXACT
    [recovery] = report["recoveries"]
    assert recovery["records"] == 0  # all that was trained is in the checkpoint


@pytest.mark.slow
def test_a_stopped_worker(flags: list[str], job_dir: pathlib.Path) -> None:
    with local_cluster(1, 0, flags) as program:
        wait_for_checkpoint(job_dir)
        worker = program.tasks()["worker 0"]
        worker.suspend()
        program.see(r"\[chief\] .*lost.*; beginning again, from the last checkpoint")
        worker.resume()
        program.see(r"\[worker 0\] .*lost.*; beginning again, from the last checkpoint")
        assert program.finish() == 0, program.text
    assert read_report(job_dir)["examples"] == EXACT


@pytest.mark.slow
def test_an_interrupted_run_goes_on(flags: list[str], job_dir: pathlib.Path) -> None:
    with local_cluster(1, 0, flags) as program:
        wait_for_checkpoint(job_dir)
        tasks = program.tasks()
        program.terminate()
        assert program.finish() == 128 + signal.SIGTERM, program.text
        assert_gone(list(tasks.values()))
    assert read_report(job_dir)["status"] == "interrupted"
    saved = checkpoints(job_dir)[-1]["queue"]["trained"]
    with local_cluster(1, 0, flags) as program:
        assert program.finish() == 0, program.text
    assert any(re.search(rf"resuming from .*: {saved:,} records", line) for line in program.lines)
    assert read_report(job_dir)["examples"] == EXACT
