"""What the chief says of a run that has ended."""

import pytest

from tests.planner.histories import run_of
from tests.trainer.page import jobs
from tfps.job_dir import JobDir
from trainer.chief.monitoring import log_bound


@pytest.fixture(name="told")
def told_fixture(tmp_path, caplog):
    """What is logged of a history."""

    def of(happened):
        job_dir = jobs.write(tmp_path / "job", happened)
        with caplog.at_level("INFO"):
            log_bound(JobDir(job_dir))
        return caplog.messages

    return of


def test_it_is_of_the_last_run(told):
    [text] = told([*run_of(workers=4), *run_of(workers=2)])
    assert text.startswith(
        "The cores of their machine, busy 78% of the time: that bounds 2 workers"
    )
    assert ": that bounds 2 workers and 1 ps at 20,000 examples/s." in text
    assert "(python -m trainer.plan " in text


def test_a_run_that_was_too_short_is_told_nothing_of(told):
    assert told([*run_of(workers=4), *run_of(workers=2, seconds=30)]) == []


def test_neither_is_a_job_without_a_history(tmp_path, caplog):
    log_bound(JobDir(tmp_path))
    assert caplog.messages == []
