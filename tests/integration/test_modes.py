"""Each mode on a real cluster whose workers are killed: every record is trained all the same."""

import pathlib
from typing import Any

import pytest
from cluster_process import (
    Program,
    local_cluster,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from counting_job import flags, trained

from tests import counting_task

LONG = 300  # seconds that a run may take on a busy machine
BATCH = 50
SIZES = (1000, 450, 1, 1549)
RECORDS = sum(SIZES)


def run_and_kill(tmp_path: pathlib.Path, mode: str, *more: str, workers: int = 2) -> dict[str, Any]:
    """Trains an epoch, during which a worker is killed; returns the report."""
    task = counting_task.CountingTask(records=RECORDS, step_seconds=0.3)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    settings = (f"--mode.name={mode}", f"--train.batch_size={BATCH}", "--train.epochs=1")
    argv = flags(data, job_dir, task, *settings, "--progress_seconds=1", *more)
    with local_cluster(workers, 2, argv) as program:
        program.see(r"\[chief\] .*: [1-9][\d,]* of 3,000 records")
        program.tasks()["worker 0"].kill()
        assert program.finish(LONG) == 0, program.text
    report = read_report(job_dir)
    assert [failure["task"] for failure in report["failures"]] == ["worker 0"]
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
    assert counts == {"trained": RECORDS, "skipped": 0, "bad": 0}
    assert (trained(data, task, job_dir, 1) > 0).all()
    return report


@pytest.mark.slow
def test_rounds_go_on_when_a_worker_is_killed(tmp_path: pathlib.Path) -> None:
    report = run_and_kill(tmp_path, "sync", "--mode.round_seconds=1")
    assert report["examples"]["repeated"] == 0
    assert report["rounds"]["closed"] == report["steps"]
    assert report["staleness"]["mean"] == 0.0


@pytest.mark.slow
def test_bounded_staleness_goes_on_when_a_worker_is_killed(tmp_path: pathlib.Path) -> None:
    more = ("--mode.max_staleness=2", "--mode.round_seconds=1")
    report = run_and_kill(tmp_path, "bounded", *more)
    assert report["examples"]["repeated"] <= BATCH
    assert report["rounds"] is None


@pytest.mark.slow
def test_rounds_with_a_backup_go_on_when_a_worker_is_killed(tmp_path: pathlib.Path) -> None:
    more = ("--mode.backup_workers=1", "--mode.round_seconds=1")
    report = run_and_kill(tmp_path, "sync", *more, workers=3)
    assert report["examples"]["repeated"] == 0


@pytest.mark.slow
def test_local_steps_go_on_when_a_worker_is_killed(tmp_path: pathlib.Path) -> None:
    report = run_and_kill(tmp_path, "local_sgd", "--mode.sync_every=4")
    assert report["examples"]["repeated"] <= 4 * BATCH


@pytest.mark.slow
def test_steps_between_exchanges_are_chosen_once_in_a_job(tmp_path: pathlib.Path) -> None:
    """The second run of the job continues with what the first one has measured."""
    task = counting_task.CountingTask(records=RECORDS, step_seconds=0.01)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir, chosen = tmp_path / "job", []
    settings = ("--mode.name=local_sgd", "--mode.sync_every=0", "--train.batch_size=2")
    for epochs in (1, 2):
        argv = flags(data, job_dir, task, *settings, f"--train.epochs={epochs}")
        with local_cluster(2, 1, argv) as program:
            assert program.finish(LONG) == 0, program.text
        assert program.text.count("--mode.sync_every=0: ") == (epochs == 1)
        chosen.append(read_report(job_dir)["sync_every"])
        assert (trained(data, task, job_dir, epochs) > 0).all()
    assert 1 <= chosen[0] == chosen[1] <= 32


@pytest.mark.slow
@pytest.mark.parametrize("ps", [0, 1])
def test_rounds_resume_from_the_checkpoint_when_a_ps_is_killed(
    tmp_path: pathlib.Path, ps: int
) -> None:
    """With the first ps the barrier loop is lost, with the other a part of the parameters."""
    task = counting_task.CountingTask(records=RECORDS, step_seconds=0.2)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    settings = ("--mode.name=sync", f"--train.batch_size={BATCH}", "--train.epochs=1")
    argv = flags(data, job_dir, task, *settings, "--train.checkpoint_seconds=1")
    with local_cluster(2, 2, argv) as program:
        wait_for_checkpoint(job_dir)
        program.tasks()[f"ps {ps}"].kill()
        assert program.finish(LONG) == 0, program.text
    report = read_report(job_dir)
    assert len(report["recoveries"]) == 1
    assert (report["examples"]["trained"], report["examples"]["skipped"]) == (RECORDS, 0)
    assert (trained(data, task, job_dir, 1) > 0).all()


@pytest.mark.slow
def test_a_checkpoint_of_one_mode_is_gone_on_from_in_every_other(
    tmp_path: pathlib.Path, datasets: Any
) -> None:
    """With other workers and ps each time: an epoch in each mode."""
    job_dir, before = tmp_path / "job", None
    modes = [
        ("async", 2, 1),
        ("sync", 2, 2),
        ("bounded", 2, 1),
        ("local_sgd", 1, 2),
        ("local", 0, 0),
    ]
    for epoch, (mode, workers, ps) in enumerate(modes, 1):
        argv = trainer_flags(
            datasets.uneven, job_dir, f"--mode.name={mode}", f"--train.epochs={epoch}"
        )
        with local_cluster(workers, ps, argv) if workers else Program(*argv) as program:
            assert program.finish(LONG) == 0, program.text
        report = read_report(job_dir)
        assert (report["mode"], report["resumed_from"]) == (mode, before)
        examples = report["examples"]
        assert examples["trained"] == epoch * examples["per_epoch"]
        assert (examples["skipped"], examples["repeated"]) == (0, 0)
        before = report["checkpoint"]
