"""The report of a run, and who may write it."""

import types

import pytest

from tests.job_dir.reports import short_report
from tfps.cluster.monitor import Failures
from tfps.evaluation.history import BestMetric, Evaluation
from tfps.job_dir import JobDir, report
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.job_dir.report import (
    FAILED,
    INTERRUPTED,
    BestEvaluation,
    EvaluationRow,
    ReportedFailure,
)
from trainer.chief.evaluations import evaluation_fields
from trainer.chief.observer import RunObserver
from trainer.chief.run import report_end
from trainer.chief.run_report import RunReport

FAILURE = ReportedFailure("ps 0", "its port refused connections", 1.7e9)


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path):
    return JobDir(tmp_path)


@pytest.fixture(name="run_report")
def run_report_fixture(job_dir):
    return RunReport(job_dir, ChiefFence.take_over(job_dir), short_report())


def test_each_part_is_in_the_file_when_it_is_known(run_report, job_dir):
    run_report.update(seconds=7.5, failures=[FAILURE], left_out=["worker 1"])
    run_report.update(stopped_early="it was enough")
    run_report.update(export="job/export")
    found = report.load(job_dir)
    assert (found.seconds, found.failures, found.left_out) == (7.5, [FAILURE], ["worker 1"])
    assert (found.stopped_early, found.export) == ("it was enough", "job/export")


@pytest.mark.parametrize(("losses", "best"), [((0.5, 0.25), 1), ((0.25, 0.5), 0)])
def test_the_best_of_all_evaluations_is_named(run_report, job_dir, losses, best):
    made = [Evaluation(f"c{k}", 10 * k, k, 70, {"loss": x}, 1.0, {}) for k, x in enumerate(losses)]
    run_report.update(**evaluation_fields(made, BestMetric("loss", is_higher_better=False)))
    rows = [EvaluationRow(k, 10 * k, {"loss": x}) for k, x in enumerate(losses)]
    found = report.load(job_dir)
    assert (found.evaluations, found.metrics) == (rows, {"loss": losses[-1]})
    assert found.best_evaluation == BestEvaluation("loss", rows[best])


def test_a_chief_that_was_superseded_writes_nothing(run_report, job_dir):
    run_report.update(export="before")
    ChiefFence.take_over(job_dir)
    with pytest.raises(SupersededError):
        run_report.update(export="after")
    assert report.load(job_dir).export == "before"


def test_the_end_is_told_if_it_can_be_written(run_report, job_dir, tmp_path, caplog):
    observer = RunObserver(types.SimpleNamespace(tell=lambda event: None), None)
    monitor = types.SimpleNamespace(failures=Failures())
    state = types.SimpleNamespace(
        update_report=run_report.update, observer=observer, monitor=monitor
    )
    report_end(state, INTERRUPTED)
    assert "error" not in report.read(job_dir)
    report_end(state, FAILED, "ps 0 was lost")
    assert (report.load(job_dir).status, report.load(job_dir).error) == (
        FAILED,
        "ps 0 was lost",
    )

    file = tmp_path / "report.json"
    file.unlink()
    file.mkdir()  # which no file can replace
    report_end(state, FAILED, "another")
    assert "the report does not tell of the end" in caplog.text
