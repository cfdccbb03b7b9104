"""A ps dies again and again; what the others held of the connections before is freed."""

import pathlib
import time

import pytest
from cluster_process import Program, read_report

RECOVERIES = 10
WARM = 3  # recoveries after which every task's allocator has what it needs at most
# Each ps holds half of 26 tables of 20,000 rows, dim 16, with one slot: 33 MB. Kept once per
# recovery, as 100 MB of functions on a worker, that would be 200 and 600 MB more after six.
ALLOWED_GROWTH = {"ps 0": 66e6, "worker 0": 300e6, "worker 1": 300e6, "chief 0": 100e6}
EXPIRY_SECONDS = 65  # for the tasks to free what a program that was begun again has left
# What is freed is given back every 20 seconds; what training frees is kept until then.
WATCHED_SECONDS = 25
FLAGS = ("--config=configs/criteo.py", "--train.epochs=1000")


def least_resident(program: Program, *tasks: str) -> dict[str, int]:
    """The least bytes of memory of some tasks in the next seconds, while they train."""
    running, least = program.tasks(), dict.fromkeys(tasks, 1 << 62)
    for _ in range(WATCHED_SECONDS):
        least = {task: min(least[task], running[task].memory_info().rss) for task in tasks}
        time.sleep(1.0)
    return least


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(1500)
def test_what_ten_recoveries_leave_behind_is_bounded(tmp_path: pathlib.Path) -> None:
    generate = (FLAGS[0], f"--output={tmp_path / 'data'}", "--records=20000", "--shards=4")
    with Program(*generate, module="trainer.generate") as program:
        assert program.finish() == 0, program.text
    own = ("--workers=2", "--ps=2", f"--max_restarts={RECOVERIES}", "--")
    job = (f"--data.train={tmp_path / 'data'}", f"--job_dir={tmp_path / 'job'}")
    with Program(*own, *FLAGS, *job, module="cloud.local", loads=True) as program:
        program.see("epoch 1 of 1000 trained")
        seen: list[dict[str, int]] = []
        servers = {name: task for name, task in program.tasks().items() if name != "ps 1"}
        for _ in range(RECOVERIES):
            first = len(program.lines)
            program.tasks()["ps 1"].kill()
            program.see("training continues", seen=first)
            lines = len(program.lines)
            program.see(r"epoch \d+ of 1000 trained", seen=lines)
            seen.append(least_resident(program, *ALLOWED_GROWTH))
            if any("beginning again" in line for line in program.lines[first:]):
                time.sleep(EXPIRY_SECONDS)
        assert all(task.is_running() for task in servers.values())
    for task in ALLOWED_GROWTH:
        print(task, [round(each[task] / 1e6) for each in seen])
    for task, allowed in ALLOWED_GROWTH.items():
        assert seen[-1][task] - seen[WARM][task] < allowed, (task, seen)
    report = read_report(tmp_path / "job")
    assert len(report["recoveries"]) == RECOVERIES
    assert [each["task"] for each in report["failures"]].count("ps 1") >= RECOVERIES
