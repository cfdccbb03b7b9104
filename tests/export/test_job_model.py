"""The model of a job, found by the job's directory."""

import pytest

import tfps
from tests.job_dir.reports import short_report
from tests.prediction_model import export
from tfps.errors import UserError
from tfps.job_dir import JobDir, report
from tfps.job_dir.report import INTERRUPTED


def test_it_is_the_newest_version_in_the_job_dir(tmp_path):
    export(tmp_path / "export" / "3")
    (tmp_path / "export" / "11").mkdir()  # not whole
    assert tfps.load_model(str(tmp_path)).directory == str(tmp_path / "export" / "3")


def test_it_may_lie_where_the_report_says(tmp_path):
    export(tmp_path / "elsewhere")
    (tmp_path / "job").mkdir()
    report.write(JobDir(tmp_path / "job"), short_report(export=str(tmp_path / "elsewhere")))
    assert tfps.load_model(str(tmp_path / "job")).directory == str(tmp_path / "elsewhere")


def test_where_there_is_none_it_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"neither an exported model nor a report\.json"):
        tfps.load_model(str(tmp_path / "nowhere"))
    report.write(JobDir(tmp_path), short_report(status=INTERRUPTED))
    with pytest.raises(
        UserError, match=r"\(interrupted\) has exported no model; .*trainer\.export"
    ):
        tfps.load_model(str(tmp_path))
