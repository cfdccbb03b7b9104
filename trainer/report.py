"""Shows what jobs did, in a few lines or on a page: `python -m trainer.report JOB_DIR…`."""

import sys
import time
from typing import TYPE_CHECKING

from absl import flags

from tfps.errors import UserError
from trainer import entry

if TYPE_CHECKING:  # it loads TensorFlow, whose noise is to be kept back before
    from trainer.page.job_record import JobRecord

_FLAGS = flags.FLAGS
flags.DEFINE_multi_string(
    "job_dir", [], "A job's directory, local or gs://; several to compare them."
)
flags.DEFINE_string("output", "", "A page to write, local or gs://; without it, a few lines.")
flags.DEFINE_integer(
    "follow", 0, "Seconds after which the page is written again while a job runs; 0: once.", 0
)


def main() -> None:
    job_dirs = _FLAGS.job_dir
    if not job_dirs:
        raise UserError("name a job's directory: python -m trainer.report JOB_DIR")
    if _FLAGS.follow and not _FLAGS.output:
        raise UserError("--follow writes a page again: name its file with --output=report.html")
    from trainer.console import quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip
    from tfps.job_dir.report import RUNNING
    from tfps.storage import objects
    from trainer.console import text_table
    from trainer.page.job_record import JobRecord

    uses = [objects.Use("--job_dir", job_dir) for job_dir in job_dirs]
    if _FLAGS.output:
        uses.append(objects.Use("--output", _FLAGS.output, writes=True))
    objects.check(uses)
    while True:
        jobs = [JobRecord.read(job_dir) for job_dir in job_dirs]
        if not _FLAGS.output:
            texts = ["\n".join(text_table.job_summary(job.job_dir, job.report)) for job in jobs]
            print("\n\n".join(texts))  # noqa: T201 (what this command is for)
            return
        runs = _FLAGS.follow > 0 and any(job.report.status == RUNNING for job in jobs)
        _write(jobs, _FLAGS.follow if runs else 0)
        if not runs:
            return
        time.sleep(_FLAGS.follow)


def _write(jobs: "list[JobRecord]", refresh_seconds: int) -> None:
    from tfps.storage.failures import StorageError
    from trainer.page import page

    try:
        page.write(jobs, _FLAGS.output, refresh_seconds)
    except StorageError as error:
        raise UserError(f"--output={_FLAGS.output}: {error}") from None
    sys.stdout.write(f"report: {_FLAGS.output}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    entry.run(main, operand="job_dir")
