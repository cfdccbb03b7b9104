import contextlib
import json

import pytest

from tests.job_dir.reports import full_report, short_report
from tfps.errors import UserError
from tfps.job_dir import JobDir, report
from tfps.job_dir.report import FINISHED, INTERRUPTED, RUNNING, TaskCounts


def test_a_job_that_runs_again_says_so(tmp_path):
    job_dir = JobDir(tmp_path)
    with report.reopened(job_dir):
        assert report.read(job_dir) is None
    for status in (FINISHED, INTERRUPTED):
        ended = short_report(status=status, steps=7)
        report.write(job_dir, ended)
        with contextlib.suppress(UserError), report.reopened(job_dir):
            assert report.load(job_dir) == short_report(status=RUNNING, steps=7)
            raise UserError("a chief that cannot run")
        assert report.load(job_dir) == ended
        with report.reopened(job_dir):
            pass
        assert report.load(job_dir) == short_report(status=RUNNING, steps=7)


@pytest.mark.parametrize(
    ("counts", "text", "tasks"),
    [
        (TaskCounts(2, 1), "2 workers, 1 ps", ["worker 0", "worker 1"]),
        (TaskCounts(2, 0), "3 replicas", ["chief", "worker 0", "worker 1"]),
        (TaskCounts(), "one process", ["this process"]),
    ],
)
def test_rows_of_workers_are_those_of_the_tasks_that_train(counts, text, tasks):
    assert str(counts) == text
    assert [counts.training_task(index) for index in range(len(tasks))] == tasks


@pytest.mark.parametrize("content", ["", '{"format": 2, "stat'])
def test_a_file_that_a_power_cut_left_is_no_report(tmp_path, content):
    (tmp_path / "report.json").write_text(content)
    with report.reopened(JobDir(tmp_path)):
        pass
    assert report.read(JobDir(tmp_path)) is None
    assert report.load(JobDir(tmp_path)) is None


def test_what_is_written_is_read_again(tmp_path):
    report.write(JobDir(tmp_path), full_report())
    assert report.load(JobDir(tmp_path)) == full_report()
    assert report.read(JobDir(tmp_path)) == json.loads(json.dumps(full_report().to_json()))


def test_a_report_of_another_version_is_refused(tmp_path):
    (tmp_path / "report.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match=r"report\.json is not a report of this version; delete it"):
        report.read(JobDir(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [{"examples": 7}, {"examples": {}}, {"workers": [7]}, {"evaluations": [{}]}],
)
def test_what_has_the_format_of_a_report_but_other_fields_is_refused(tmp_path, changes):
    (tmp_path / "report.json").write_text(json.dumps({**full_report().to_json(), **changes}))
    with pytest.raises(UserError, match=r"report\.json is not a report of this version \(.+delete"):
        report.load(JobDir(tmp_path))
