import pathlib

from tfps.job_dir import JobDir
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName


def test_who_leaves_is_announced_until_it_is_let_go(tmp_path: pathlib.Path) -> None:
    of_run = [TaskName("ps", index) for index in range(2)]
    chief, ps = PreemptionNotices(JobDir(tmp_path), of_run), PreemptionNotices(JobDir(tmp_path))
    assert chief.posted() == []
    ps.post(TaskName("ps", 1))
    ps.post(TaskName("ps", 0))
    assert chief.posted() == [TaskName("ps", 0), TaskName("ps", 1)]
    chief.clear(TaskName("ps", 1))
    assert (ps.is_posted(TaskName("ps", 0)), ps.is_posted(TaskName("ps", 1))) == (True, False)
    ps.clear(TaskName("ps", 1))  # again: it is away already
    assert chief.posted() == [TaskName("ps", 0)]


def test_what_a_run_with_more_ps_left_is_passed_over(tmp_path: pathlib.Path) -> None:
    ps, gone = TaskName("ps", 0), TaskName("ps", 1)
    before = PreemptionNotices(JobDir(tmp_path))
    for task in (ps, gone):
        before.post(task)
    assert PreemptionNotices(JobDir(tmp_path), [ps]).posted() == [ps]
    assert before.is_posted(gone)
