import pytest

from tfps.errors import UserError
from tfps.job_dir import report
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import FINISHED, INTERRUPTED, RUNNING, Report


def test_a_job_that_runs_again_says_so(tmp_path):
    job_dir = str(tmp_path)
    report.reopen(job_dir)
    assert report.read(job_dir) is None
    for status in (FINISHED, INTERRUPTED):
        Report(job_dir, ChiefFence(job_dir), mode="allreduce").write(status=status, steps=7)
        report.reopen(job_dir)
        fields = report.read(job_dir)
        assert (fields["status"], fields["steps"], fields["mode"]) == (RUNNING, 7, "allreduce")


@pytest.mark.parametrize("content", ["", '{"format": 2, "stat'])
def test_a_file_that_a_power_cut_left_is_no_report(tmp_path, content):
    (tmp_path / "report.json").write_text(content)
    report.reopen(str(tmp_path))
    assert report.read(str(tmp_path)) is None


def test_a_report_of_another_version_is_refused(tmp_path):
    (tmp_path / "report.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match=r"report\.json is not a report of this version; delete it"):
        report.read(str(tmp_path))
