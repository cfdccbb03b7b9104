"""What `trainer.resize` refuses before it asks a run."""

import pytest

from tests.job_dir.reports import full_report
from tests.loaded import client
from tfps.job_dir import JobDir, report
from tfps.job_dir.report import FINISHED

SIZE = ("--workers=2", "--ps=2")


def refusal(*flags):
    done = client.run("trainer.resize", *flags)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_directory_is_named_with_a_flag_or_without(tmp_path):
    report.write(JobDir(tmp_path), full_report(status=FINISHED, error=None))
    for named in (str(tmp_path), f"--job_dir={tmp_path}"):
        assert "the run is finished; start it with other numbers" in refusal(named, *SIZE)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (SIZE, "name a job's directory: python -m trainer.resize JOB_DIR"),
        (("nowhere", *SIZE), "nowhere has no report.json"),
        (("nowhere", "--job_dir=there", *SIZE), "--job_dir=there and 'nowhere': give one of them"),
        (("nowhere", "--workers=2"), "--ps must have a value"),
        (("nowhere", "--workers=0", "--ps=1"), "workers"),
    ],
)
def test_what_says_no_size_of_a_job_is_refused(flags, message):
    assert message in refusal(*flags)
