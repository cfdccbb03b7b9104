"""Starts every task of a cluster on this machine: `python -m cloud.local`.

    python -m cloud.local --workers=2 --ps=2 -- --config=configs/census.py --job_dir=/tmp/census

What follows `--` goes to every task. The run ends when the chief ends, with its exit code. It is
short for `python -m cloud.submit --target=local`.
"""

import sys
from collections.abc import Sequence

from absl import flags

from cloud import command_line, job_spec
from cloud.job_spec import JobSpec, Role
from cloud.local.target import define_flags, from_flags
from tfps.errors import UserError

_NAME = "local"
# An own set of flags: absl.logging has a --log_dir too.
_FLAGS = flags.FlagValues()


def _define_flags() -> None:
    def integer(name: str, default: int, text: str) -> None:
        flags.DEFINE_integer(name, default, text, lower_bound=0, flag_values=_FLAGS)

    def boolean(name: str, text: str) -> None:
        flags.DEFINE_boolean(name, False, text, flag_values=_FLAGS)

    integer("workers", 2, "Number of workers.")
    integer("ps", 2, "Number of ps.")
    boolean("evaluator", "Adds an evaluator; the workers then only train.")
    integer("max_restarts", 3, "Restarts of a task that dies, until it has run ten minutes.")
    boolean("dry_run", "Prints the chief's plan for so many tasks; starts none.")
    flags.DEFINE_string(
        "module", "trainer.task", "Module that every task runs.", flag_values=_FLAGS
    )
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=_FLAGS)
    define_flags(_FLAGS)


_define_flags()


def main(argv: Sequence[str]) -> int:
    """Runs a local cluster; returns the chief's exit code, 2 for a user's mistake, or 3."""
    return command_line.run_launcher(argv, _FLAGS, "python -m cloud.local", __doc__ or "", _run)


def _run(args: tuple[str, ...]) -> int:
    target, spec = from_flags(_FLAGS), job_spec.with_default(_spec(args), False)
    return target.plan(spec) if _FLAGS.dry_run else target.submit(spec)


def _spec(args: tuple[str, ...]) -> JobSpec:
    workers, ps = _FLAGS.workers, _FLAGS.ps
    if not workers:
        hint = (
            f"for one process without a cluster run `python -m {_FLAGS.module} --mode.name=local`"
            if not ps
            else "a cluster needs a worker: give --workers=1 or more"
        )
        raise UserError(f"--workers=0 --ps={ps} is no cluster; {hint}")
    counts = {"chief": 1, "worker": workers, "ps": ps, "evaluator": int(_FLAGS.evaluator)}
    roles = tuple(Role(job, replicas) for job, replicas in counts.items() if replicas)
    return JobSpec(_NAME, args, roles, _FLAGS.module, restarts=_FLAGS.max_restarts)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
