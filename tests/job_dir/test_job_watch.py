"""Whether another job goes on, as its files tell it."""

import json

import pytest

from tests.job_dir.reports import short_report
from tfps.errors import RunError
from tfps.job_dir import report
from tfps.job_dir.job_watch import JobWatch
from tfps.job_dir.report_fields import FAILED, FINISHED, INTERRUPTED
from tfps.job_dir.task_name import TaskName
from tfps.job_dir.task_usage import REPORT_SECONDS, TaskUsage

WAIT, LOST = 600.0, 60.0
LIMIT = LOST + 2 * REPORT_SECONDS


class Followed:
    """A job's directory, and a clock that goes on when it is told to."""

    def __init__(self, job_dir):
        self.job_dir = str(job_dir)
        self.now = 1000.0
        self._cpu_seconds = 0.0

    def watch(self):
        return JobWatch(self.job_dir, WAIT, LOST, lambda: self.now)

    def reports(self, **fields):
        report.write(self.job_dir, short_report(**fields))

    def works(self, task="ps"):
        """A task tells that it is there."""
        self._cpu_seconds += 1
        TaskUsage(self.now, 1, self._cpu_seconds).write(self.job_dir, TaskName(task, 0))


@pytest.fixture(name="followed")
def followed_fixture(tmp_path):
    return Followed(tmp_path)


def test_a_job_that_is_finished_has_ended(followed):
    followed.reports(status=FINISHED)
    assert followed.watch().has_ended()


def test_a_job_goes_on_as_long_as_a_task_of_it_is_heard(followed):
    followed.reports()
    watch = followed.watch()
    for _ in range(20):
        followed.now += LIMIT
        followed.works()
        assert not watch.has_ended()
    followed.reports(status=FINISHED)
    assert watch.has_ended()


def test_a_job_whose_tasks_are_silent_is_lost(followed):
    followed.reports()
    watch = followed.watch()
    followed.now += REPORT_SECONDS
    followed.works()
    assert not watch.has_ended()
    followed.now += LIMIT
    assert not watch.has_ended()
    followed.now += 1
    with pytest.raises(RunError, match=rf"nothing was heard of the job in \S+ for {LIMIT + 1:.0f}"):
        watch.has_ended()


def test_what_lies_there_of_an_earlier_run_is_no_sign_of_life(followed):
    followed.reports()
    followed.works()
    watch = followed.watch()
    followed.now += WAIT
    assert not watch.has_ended()
    followed.now += 1
    with pytest.raises(RunError, match=r"did not begin within 600 s; start it"):
        watch.has_ended()


def test_a_job_may_begin_later_than_the_one_that_follows_it(followed):
    watch = followed.watch()
    followed.now += WAIT
    assert not watch.has_ended()
    followed.reports()
    assert not watch.has_ended()
    followed.now += LIMIT
    assert not watch.has_ended()


@pytest.mark.parametrize("status", [INTERRUPTED, FAILED])
def test_a_job_that_ended_early_may_run_again(followed, status, caplog):
    caplog.set_level("INFO")
    followed.reports()
    watch = followed.watch()
    followed.reports(steps=1)
    assert not watch.has_ended()
    followed.reports(status=status)
    followed.now += 1
    assert not watch.has_ended()
    followed.now += WAIT - 2
    assert not watch.has_ended()
    assert caplog.text.count(f"is {status}: waiting up to 600 s for it to run") == 1
    followed.reports(steps=2)
    assert not watch.has_ended()
    followed.reports(status=status, steps=2)
    assert not watch.has_ended()
    followed.now += WAIT + 1
    assert watch.has_ended()


def test_a_report_that_is_cut_off_is_none_for_now(followed, tmp_path):
    followed.reports()
    watch = followed.watch()
    followed.reports(steps=1)
    assert not watch.has_ended()
    (tmp_path / "report.json").write_text(json.dumps({"format": 1})[:-1])
    assert not watch.has_ended()
