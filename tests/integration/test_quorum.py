"""A run that begins without some of its workers, loses others, and takes them all in."""

import os
import pathlib
import signal

import psutil
import pytest
from cluster_process import read_report, trainer_flags
from datasets_on_disk import Datasets
from separate_tasks import SeparateTasks

APART = 900  # seconds between two changes, at most: several times what one takes on a busy machine
SLOW = ("--train.batch_size=8", "--task.dim=2", "--train.epochs=1000")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_workers_join_and_are_left_out(datasets: Datasets, tmp_path: pathlib.Path) -> None:
    job_dir = tmp_path / "job"
    flags = trainer_flags(datasets.long, job_dir, *SLOW)
    with SeparateTasks(flags, job_dir, workers=3, ps=1) as tasks:
        tasks.serve("ps 0")
        last = tasks.serve("worker 2")
        own = ("--min_workers=1", "--connect_seconds=3", "--task_wait_seconds=4")
        chief = tasks.start("chief 0", *own)
        for away in (0, 1):
            chief.see(rf"left out until it answers: worker {away} at .*refused connections")
        chief.see("connected to 1 workers and 1 ps")
        tasks.serve("worker 0")
        chief.see("worker 0 can join; beginning again")
        chief.see("left out until it answers: worker 1 ")
        chief.see("connected to 2 workers and 1 ps")
        chief.see(r"resuming from .*: \S+ records trained")
        chief.see("epoch .* trained")
        os.kill(last.pid, signal.SIGKILL)
        chief.see(r"worker 2 at .* did not come back within 4 s; in \d+ s, with who comes or goes")
        tasks.serve("worker 1")  # who only goes can wait for half an hour: nobody trains less
        seen = len(chief.lines)
        both = "worker 1 can join; worker 2 at .* did not come back within 4 s; beginning again"
        chief.see(both, seen, APART)
        chief.see("connected to 2 workers and 1 ps", seen)
        tasks.serve("worker 2")
        chief.see("worker 2 can join; beginning again", seen, APART)
        chief.see("connected to 3 workers and 1 ps")
        chief.see("epoch .* trained", seen=len(chief.lines))
        assert read_report(job_dir)["left_out"] == []
        chief.terminate()
        assert chief.finish() == 128 + signal.SIGTERM, chief.text
    report = read_report(job_dir)
    examples = report["examples"]
    assert (report["status"], examples["skipped"]) == ("interrupted", 0)
    assert "worker 2" in [each["task"] for each in report["failures"]]  # of a program before
    # Worker 2 was lost with what it held and what waited for it.
    assert 0 <= examples["repeated"] <= 4 * 8
    assert all(share["leases"] for share in report["workers"]), report["workers"]
    assert chief.errors == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_others_take_over_at_once_where_all_workers_are_lost(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    job_dir = tmp_path / "job"
    flags = trainer_flags(datasets.long, job_dir, *SLOW)
    with SeparateTasks(flags, job_dir, workers=2, ps=1) as tasks:
        tasks.serve("ps 0")
        first = tasks.serve("worker 0")
        chief = tasks.start("chief 0", "--min_workers=1", "--connect_seconds=3")
        chief.see("left out until it answers: worker 1 ")
        chief.see("epoch .* trained")
        os.kill(first.pid, signal.SIGKILL)
        tasks.serve("worker 1")
        chief.see("worker 0 at .* are lost, and worker 1 can take over; beginning again")
        chief.see("left out until it answers: worker 0 ")
        chief.see(r"resuming from .*: \S+ records trained")
        chief.see("epoch .* trained", seen=len(chief.lines))
        # The program before has left no process that this one does not know.
        children = psutil.Process(chief.pid).children()
        assert psutil.STATUS_ZOMBIE not in [each.status() for each in children]
        chief.terminate()
        assert chief.finish() == 128 + signal.SIGTERM, chief.text
    report = read_report(job_dir)
    assert [each["what"].partition(" ")[0] for each in report["recoveries"]] == ["worker"]
    assert report["examples"]["skipped"] == 0
    assert chief.errors == []
