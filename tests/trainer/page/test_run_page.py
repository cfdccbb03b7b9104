"""The page that a run leaves behind."""

from tests.trainer.page.jobs import BEGAN, events, write
from tfps.job_dir import JobDir
from tfps.monitoring.events import RunEnded
from tfps.monitoring.recorder import RunRecorder
from trainer.page.page import RunPage


def test_the_page_is_there_when_the_run_has_ended(tmp_path):
    job_dir = tmp_path / "job"
    page = RunPage(JobDir(write(job_dir, events())))
    *before, end = events()
    assert isinstance(end, RunEnded)
    for event in before:
        page.tell(event)
    page.flush()
    assert not (job_dir / "report.html").exists()
    page.tell(end)
    page.flush()
    assert "Records per second" in (job_dir / "report.html").read_text()
    (job_dir / "report.html").unlink()
    page.flush()
    assert not (job_dir / "report.html").exists()


def test_a_page_that_nothing_can_be_shown_on_ends_nothing(tmp_path, caplog):
    recorder = RunRecorder([RunPage(JobDir(tmp_path))])
    recorder.tell(RunEnded(at=BEGAN, status="finished"))
    recorder.close()
    [warning] = caplog.messages
    assert warning.startswith("the page of the run cannot be written for now: ")
    assert "no job ran there" in warning
