"""What tasks take of their machines, as the chief collects it."""

import os
import types

import psutil
import pytest

from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from trainer.chief.monitoring import TaskUsages

PS = TaskName("ps", 0)
CLUSTER = types.SimpleNamespace(
    task=TaskName("chief", 0),
    is_local=False,
    evaluators=("host:1",),
    peers=lambda: {PS: "host:2"},
    addresses=lambda: ["host:2"],
)


def test_a_process_measures_itself():
    usage, seen = TaskUsage.own(), psutil.Process(os.getpid())
    assert usage.memory_bytes == pytest.approx(seen.memory_info().rss, rel=0.1)
    assert usage.cpu_seconds == pytest.approx(sum(seen.cpu_times()[:2]), abs=2.0)


def test_a_process_tells_what_it_has_sent():
    usage = TaskUsage.own(lambda: (7, 8))
    assert (usage.sent_bytes, usage.received_bytes) == (7, 8)


def test_each_report_is_told_once_and_none_of_before(tmp_path):
    job_dir = JobDir(tmp_path)
    TaskUsage(1.0, 10, 0.1).write(job_dir, PS)  # of a ps that is gone
    usages = TaskUsages(job_dir, CLUSTER)

    def others():
        [event] = usages.look()
        assert event.tasks["chief 0"].memory_bytes > 0
        return {name: usage for name, usage in event.tasks.items() if name != "chief 0"}

    assert others() == {}
    evaluator = TaskUsage(2.0, 20, 0.2)
    evaluator.write(job_dir, TaskName("evaluator", 0))
    assert others() == {"evaluator 0": evaluator}
    assert others() == {}
    (tmp_path / "tasks/ps-0.usage.json").write_text('{"at": 3')
    assert others() == {}
    ps = TaskUsage(3.0, 30, 0.3)
    ps.write(job_dir, PS)
    assert others() == {"ps 0": ps}
