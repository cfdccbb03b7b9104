"""A job beside four busy loops per core: it starts, trains and ends as on an idle machine."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster_process import local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task

LOOPS_PER_CORE = 4
LONG = 900  # seconds that the job may take: it has a fifth of the machine, or less
SIZES = (300, 300)
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(2 * LONG)]


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    cores = len(os.sched_getaffinity(0))
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(LOOPS_PER_CORE * cores)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_no_limit_runs_out_and_no_task_counts_as_lost(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=sum(SIZES), step_seconds=0.2)
    data, job_dir = counting_task.write(tmp_path / "data", task, SIZES), tmp_path / "job"
    settings = ("--train.batch_size=10", "--train.epochs=2")
    # The programs load TensorFlow themselves: that is what takes long at a start.
    with (
        busy_loops(),
        local_cluster(2, 1, flags(data, job_dir, task, *settings), loads=True) as program,
    ):
        assert program.finish(LONG) == 0, program.text
    report = read_report(job_dir)
    assert (report["status"], report["failures"], report["recoveries"]) == ("finished", [], [])
    assert report["examples"]["repeated"] == report["examples"]["skipped"] == 0
    assert (trained(data, task, job_dir, 2) == 2).all()
    for word in ("lost", "does not answer"):
        assert word not in program.text
