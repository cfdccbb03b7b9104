import json
import math

import pytest

from tfps.live_view.status import MOST_TASKS, RunStatus, TaskStatus, from_json, parse

TASKS = (
    TaskStatus(name="chief", memory_bytes=10**9, cores=0.2),
    TaskStatus(name="worker 0", share=0.4, idle=0.01),
    TaskStatus(name="worker 1", share=0.6, idle=0.2),
    TaskStatus(name="ps 0", state="lost"),
)


def run_status(**fields):
    usual = {
        "config": "census",
        "mode": "async",
        "epoch": 1,
        "epochs": 2,
        "records": 1250,
        "records_of_epoch": 5000,
        "examples_per_second": 1234.5,
        "tasks": TASKS,
    }
    return RunStatus(**usual | fields)


@pytest.mark.parametrize(
    "status",
    [run_status(), run_status(loss=0.25, seconds_left=7.5), run_status(loss=math.inf, tasks=())],
)
def test_a_status_is_read_as_it_was_told(status):
    assert parse(status.to_text()) == status
    assert from_json({"severity": "INFO", **status.to_json()}) == status


def test_a_platform_may_keep_numbers_as_floating_point():
    told = json.loads(run_status().to_text(), parse_int=float)
    assert from_json(told) == run_status()


@pytest.mark.parametrize(
    "text",
    [
        "a line",
        "{}",
        '{"tfps_status": 1',
        '{"tfps_status": 1}',
        '{"tfps_status": 2, "config": "census"}',
        run_status().to_text().replace("1250", '"many"'),
        run_status().to_text().replace('"chief"', "[7]"),
        run_status().to_text().replace("1234.5", "null"),
    ],
)
def test_another_line_is_no_status(text):
    assert parse(text) is None


def test_the_line_of_a_status():
    assert run_status().line == "epoch 1/2: 1,250 of 5,000 records, 1,234 examples/s"
    all_told = run_status(loss=0.5, seconds_left=3723.4).line
    assert all_told.endswith("1,234 examples/s, loss 0.5000, 1:02:03 left")
    assert "left" not in run_status(seconds_left=math.inf).line


def test_of_too_many_tasks_those_are_kept_that_are_not_up_or_wait_most():
    cut = run_status().cut(2)
    assert [task.name for task in cut.tasks] == ["worker 1", "ps 0"]
    assert cut.more_tasks == 2
    assert cut.cut(1).more_tasks == 3


def test_a_status_of_many_tasks_fits_a_line_of_a_log():
    tasks = tuple(TaskStatus(name=f"worker {index}", share=1 / 900) for index in range(900))
    told = parse(run_status(tasks=tasks).to_text())
    assert (len(told.tasks), told.more_tasks) == (MOST_TASKS, 900 - MOST_TASKS)
