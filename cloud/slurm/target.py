"""A job on Slurm: `--target=slurm`."""

import re
import subprocess
import sys

from absl import flags

from cloud.job_spec import JobSpec
from cloud.slurm.script import Allocation, script
from cloud.target import Document, Target
from tfps.errors import EXIT_OK, RunError, UserError

_SECONDS = 120.0  # for one of Slurm's commands
_COLUMNS = "%i %T %j %V %R"


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of this target.

    Args:
        values: Where to.
    """

    def integer(name: str, default: int, least: int, text: str) -> None:
        flags.DEFINE_integer(name, default, f"Slurm: {text}", lower_bound=least, flag_values=values)

    integer("nodes", 0, 0, "number of nodes; 0 for one per worker.")
    integer("first_port", Allocation.first_port, 1024, "of as many as there are tasks.")
    for name, text in (
        ("partition", "partition of the nodes."),
        ("account", "account that pays."),
        ("qos", "quality of service."),
    ):
        flags.DEFINE_string(name, "", f"Slurm: {text}", flag_values=values)
    flags.DEFINE_string(
        "python", Allocation.python, "Slurm: interpreter, on all nodes.", flag_values=values
    )


def from_flags(values: flags.FlagValues) -> "SlurmTarget":
    """The target that the flags of `define_flags` describe."""
    return SlurmTarget(
        Allocation(
            values.nodes,
            values.partition,
            values.account,
            values.qos,
            values.first_port,
            values.python,
        )
    )


class SlurmTarget(Target):
    """The Slurm cluster whose commands are on this machine."""

    name = "slurm"

    def __init__(self, allocation: Allocation):
        """Describes what to ask for.

        Args:
            allocation: Beside what the job itself says.
        """
        self._allocation = allocation

    def render(self, spec: JobSpec) -> tuple[Document, ...]:
        """The batch script."""
        return (script(spec, self._allocation),)

    def submit(self, spec: JobSpec, wait: bool) -> int:
        """Hands the batch script to sbatch; with `wait` until the job has ended."""
        flags = ["--parsable", *(["--wait"] if wait else [])]
        rendered = script(spec, self._allocation)
        job = _run(["sbatch", *flags], rendered, limit_seconds=None if wait else _SECONDS)
        number = job.partition(";")[0].strip()
        print(f"submitted {number}")  # noqa: T201 - its result
        print(f"its output: {spec.name}-{number}.log", file=sys.stderr)  # noqa: T201
        return EXIT_OK

    def cancel(self, job: str) -> int:
        """Has the chief save, and ends the job."""
        _run(["scancel", _number(job)])
        return EXIT_OK

    def list(self) -> int:
        """Prints the user's jobs that wait or run, as squeue does."""
        print(_run(["squeue", "--me", f"--format={_COLUMNS}"]), end="")  # noqa: T201
        return EXIT_OK

    def describe(self, job: str) -> int:
        """Prints what Slurm says of a job."""
        print(_run(["scontrol", "show", "job", _number(job)]), end="")  # noqa: T201
        return EXIT_OK


def _number(job: str) -> str:
    if not re.fullmatch(r"\d+", job):
        raise UserError(f"{job!r} is no job of Slurm; write its number, such as 4711")
    return job


def _run(
    command: "list[str]", stdin: str | None = None, limit_seconds: float | None = _SECONDS
) -> str:
    """Runs one of Slurm's commands; returns what it prints."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=limit_seconds, check=False
        )
    except FileNotFoundError:
        raise UserError(
            f"{command[0]} is not on this machine: submit on a login node of the cluster, or give "
            "--dry_run and take the script there"
        ) from None
    except subprocess.TimeoutExpired:
        raise RunError(
            f"`{' '.join(command)}` has not answered for {limit_seconds:.0f} s; is Slurm up? "
            "(`scontrol ping`)"
        ) from None
    if done.returncode:
        error = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
        raise RunError(f"`{' '.join(command)}`: {error}")
    return done.stdout
