"""Trains a job for a minute, to measure what a step takes."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from cloud.job_spec import flag_value
from tfps.errors import RunError, UserError
from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.planner.measured_run import LEAST_SECONDS, MeasuredRun, TooShortError

_LOOK_SECONDS = 2.0
_LIMIT_SECONDS = 900.0
_ENDED = (0, 128 + signal.SIGTERM)


def measure(arguments: Sequence[str], job_dir: str) -> None:
    """Trains with a worker and a ps on this machine until a step is measured, and ends the job.

    Args:
        arguments: Flags of `trainer.task`.
        job_dir: Where it trains.

    Raises:
        UserError: If the job cannot train, ends before, or has run already.
        RunError: If nothing is measured within 15 minutes.
    """
    if flag_value("job_dir", arguments):
        raise UserError("name the job's directory before --, or none for one that is deleted")
    if recorder.read(JobDir(job_dir)):
        raise UserError(
            f"{job_dir} has a run already: leave out what stands behind --, or name another "
            "directory"
        )
    command = [
        *(sys.executable, "-m", "cloud.local", "--workers=1", "--ps=1", "--max_restarts=0"),
        *("--", *arguments, f"--job_dir={job_dir}"),
    ]
    began = time.monotonic()
    with _ended(subprocess.Popen(command, stdout=sys.stderr)) as process:
        while process.poll() is None and not _is_measured(job_dir):
            if time.monotonic() - began > _LIMIT_SECONDS:
                raise RunError(
                    f"the job has not trained for {LEAST_SECONDS:.0f} s within "
                    f"{_LIMIT_SECONDS:.0f} s; its log is above"
                )
            time.sleep(_LOOK_SECONDS)
    if process.returncode not in _ENDED:
        raise UserError(f"the job ended with exit code {process.returncode}; its log is above")
    if not _is_measured(job_dir):
        raise UserError(
            f"the job ended after {time.monotonic() - began:.0f} s, its start included, and a step "
            f"is measured in {LEAST_SECONDS:.0f} s; give it more epochs: --train.epochs"
        )


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Has the launcher save and end, also when this process is asked to."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        signal.signal(signal.SIGTERM, before)


def _is_measured(job_dir: str) -> bool:
    try:
        MeasuredRun.of(recorder.read(JobDir(job_dir)))
    except TooShortError:
        return False
    return True
