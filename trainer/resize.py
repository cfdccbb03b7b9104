r"""Changes how many workers and ps a running job has.

    python -m trainer.resize --job_dir=JOB_DIR --workers=8 --ps=4

The chief saves, all tasks end, and the launcher starts the new number; the training resumes from
that checkpoint. `cloud.local`, `cloud.node` and jobs of `cloud.submit` with `--target=ssh` or
`--target=slurm` can do that. Elsewhere end the job and submit it again with other numbers: it
resumes all the same.
"""

import time

from absl import flags

from tfps.errors import RunError, UserError
from trainer import entry

_FLAGS = flags.FLAGS
_POLL_SECONDS = 0.5


def main() -> None:
    from trainer.console import quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip
    from tfps.job_dir import JobDir
    from tfps.job_dir import report as report_file
    from tfps.job_dir.size import Size
    from tfps.job_dir.size_request import DONE, SizeRequest
    from tfps.storage import objects

    if not _FLAGS.job_dir:
        raise UserError("name a job's directory: python -m trainer.resize JOB_DIR")
    objects.check([objects.Use("--job_dir", _FLAGS.job_dir, writes=True)])
    job_dir = JobDir(_FLAGS.job_dir)
    report = report_file.load(job_dir)
    if report is None:
        raise UserError(f"{job_dir} has no report.json; name the directory of a job that runs")
    if report.status != report_file.RUNNING:
        raise UserError(
            f"{job_dir}: the run is {report.status}; start it with other numbers, and it resumes"
        )
    request, size = SizeRequest(job_dir), Size(_FLAGS.workers, _FLAGS.ps)
    request.post(size)
    began = time.monotonic()
    _say(f"asked for {size}; a training saves first")
    while not (asked := request.read()) or not asked.answer:
        report = report_file.load(job_dir)
        if report and report.status == report_file.FINISHED:
            raise UserError(f"{job_dir}: the run has ended before it had another size")
        if time.monotonic() - began > _FLAGS.wait_seconds:
            request.answer("withdrawn")
            raise RunError(
                f"{job_dir}: no chief has answered in {_FLAGS.wait_seconds:g} s (--wait_seconds), "
                "and the request is withdrawn: see whether the job runs"
            )
        time.sleep(_POLL_SECONDS)
    if asked.answer != DONE:
        raise UserError(f"{job_dir}: {asked.answer}")
    _say(f"the run has begun with {size}, after {time.monotonic() - began:.1f} s")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what this command is for


def _define_flags() -> None:
    flags.DEFINE_string("job_dir", None, "The job's directory, local or gs://.")
    flags.DEFINE_integer("workers", None, "Workers to have.", lower_bound=1, required=True)
    flags.DEFINE_integer("ps", None, "ps to have; 0 for a run that has none.", 0, required=True)
    flags.DEFINE_float("wait_seconds", 600, "How long to wait for the run.", lower_bound=0)


if __name__ == "__main__":
    _define_flags()
    entry.run(main, operand="job_dir")
