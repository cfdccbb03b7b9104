from tfps import report
from tfps.fence import Fence
from tfps.report import FINISHED, INTERRUPTED, RUNNING, Report


def test_a_job_that_runs_again_says_so(tmp_path):
    job_dir = str(tmp_path)
    report.reopen(job_dir)
    assert report.read(job_dir) is None
    for status in (FINISHED, INTERRUPTED):
        Report(job_dir, Fence(job_dir), mode="allreduce").write(status=status, steps=7)
        report.reopen(job_dir)
        fields = report.read(job_dir)
        assert (fields["status"], fields["steps"], fields["mode"]) == (RUNNING, 7, "allreduce")
