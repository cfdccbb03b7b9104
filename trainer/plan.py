r"""Says how many machines a job needs, from a run that has trained.

    python -m trainer.plan JOB_DIR --examples_per_second=200000
    python -m trainer.plan JOB_DIR --deadline_hours=3
    python -m trainer.plan --deadline_hours=3 -- --config=mine.py --data.train=data/train

It prints what bounded the run, what other numbers of workers and ps are expected to do on such
machines, and the cheapest machines of a list on which each task has its own. With the flags of a
job behind -- it first trains that job on this machine, for about a minute.
"""

import contextlib
import math
import pathlib
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from cloud.job_spec import split_at_tasks
from tfps import byte_size
from tfps.errors import UserError
from trainer import entry

if TYPE_CHECKING:  # what it imports takes longer than --help may
    from tfps.planner.machine_prices import MachineType

_FLAGS = flags.FLAGS
_job_flags: list[str] = []  # of a job that is to be measured first
_MACHINES = pathlib.Path(__file__).parents[1] / "configs" / "machines.csv"


def main() -> None:
    from trainer.console import quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip
    from tfps.planner import machine_prices
    from tfps.storage import objects
    from trainer import measuring

    _check()
    types = machine_prices.read(_FLAGS.machines or str(_MACHINES))
    network = math.inf
    if _FLAGS.network:
        network = byte_size.parse(_FLAGS.network, "--network")
    with contextlib.ExitStack() as stack:
        job_dir = _FLAGS.job_dir or stack.enter_context(tempfile.TemporaryDirectory())
        objects.check([objects.Use("--job_dir", job_dir, writes=bool(_job_flags))])
        if _job_flags:
            measuring.measure(_job_flags, job_dir)
        lines = _planned(job_dir, types, network)
    print("\n".join(lines))  # noqa: T201 - what this command is for


def _planned(job_dir: str, types: Sequence["MachineType"], network: float) -> list[str]:
    """The plan, line by line."""
    from tfps.job_dir.report import FINISHED
    from tfps.job_dir.size import Size
    from tfps.planner import cheapest
    from tfps.planner.measured_run import LEAST_SECONDS, MeasuredRun, TooShortError
    from trainer.console import plan_text
    from trainer.page.job_record import JobRecord

    job = JobRecord.read(job_dir)
    try:
        run = MeasuredRun.of(job.events, network)
    except TooShortError:
        raise UserError(
            f"--job_dir={job_dir}: no run there has trained for {LEAST_SECONDS:.0f} s with "
            "reports of all its tasks; train for two minutes first, such as with --workers=1 "
            "--ps=1 of python -m cloud.local"
        ) from None
    records = run.epochs * job.report.examples.per_epoch
    if job.report.status == FINISHED:
        records = job.report.examples.trained
    wanted = _FLAGS.examples_per_second
    if _FLAGS.deadline_hours:
        if job.report.followed:
            raise UserError(
                "--deadline_hours: the job trains datasets as they come, which has no end; give "
                "--examples_per_second"
            )
        wanted = records / (3600 * _FLAGS.deadline_hours)
    size = Size(_FLAGS.workers or run.size.workers, _FLAGS.ps or run.size.ps)
    lines = [*plan_text.measured(run), "", *plan_text.sizes(run, size)]
    if wanted:
        lines += ["", *plan_text.offers(cheapest.offers(run, types, wanted), run, wanted, records)]
    return lines


def _check() -> None:
    if not _FLAGS.job_dir and not _job_flags:
        raise UserError(
            "name a job's directory, python -m trainer.plan JOB_DIR, or give a job's flags behind "
            "--, and it is trained for a minute first"
        )
    if _FLAGS.examples_per_second and _FLAGS.deadline_hours:
        raise UserError("--examples_per_second and --deadline_hours ask the same; give one of them")


def _without_job(arguments: Sequence[str]) -> list[str]:
    """The arguments before those of a job."""
    own, of_job = split_at_tasks(arguments)
    _job_flags.extend(of_job)
    return own


def _define_flags() -> None:
    flags.DEFINE_string("job_dir", None, "A job's directory, local or gs://.")
    flags.DEFINE_float("examples_per_second", 0, "The speed that is wanted; 0: none.", 0)
    flags.DEFINE_float("deadline_hours", 0, "Hours that all epochs may take; 0: any.", 0)
    flags.DEFINE_integer("workers", 0, "Workers to forecast; 0: as many as the run had.", 0)
    flags.DEFINE_integer("ps", 0, "ps to forecast; 0: as many as the run had.", 0)
    flags.DEFINE_string(
        "machines", "", "CSV file of machine types and prices; empty: configs/machines.csv."
    )
    flags.DEFINE_string(
        "network",
        "",
        "Bytes a second of the machines that the run had, such as 125MB; empty: "
        "not what bounded it.",
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main, operand="job_dir", rewritten=_without_job)
