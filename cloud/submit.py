r"""Starts a job on a platform: `python -m cloud.submit --target=vertex … -- …`.

    python -m cloud.submit --target=local --workers=2 --ps=2 -- \
      --config=configs/census.py --data.train=data/train --job_dir=runs/census

What follows `--` goes to every task. Other verbs come first: `follow JOB`, `cancel JOB`,
`describe JOB`, `list`, each with the target's own flags.
"""

import sys
from collections.abc import Sequence

from absl import flags

from cloud import command_line, deploy, job_flags, job_spec, remote_target
from cloud.command_line import CommandLine
from cloud.job_spec import JobSpec
from cloud.target import Target
from tfps.errors import UserError

_TARGETS = {
    "local": "cloud.local.target",
    "vertex": "cloud.vertex.target",
    "jobset": "cloud.kubernetes.target",
    "trainjob": "cloud.kubernetes.target",
    "tfjob": "cloud.kubernetes.target",
    "slurm": "cloud.slurm.target",
    "ssh": "cloud.ssh.target",
}
_PROGRAM = "python -m cloud.submit"
_VERBS = ("submit", "follow", "cancel", "describe", "list")


def _define_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_boolean("wait", False, "Follows the job to its end.", flag_values=values)
    for name, default, text in (
        ("wait_seconds", 8 * 24 * 3600.0, "How long to follow a job at most."),
        ("poll_seconds", 10.0, "Between two looks at a job that is followed."),
    ):
        flags.DEFINE_float(name, default, text, lower_bound=0.0, flag_values=values)
    job_flags.define(values)


def main(argv: Sequence[str]) -> int:
    """Renders, sends or manages one job; 2 for a user's mistake, 3 if platform or job failed."""
    return command_line.guarded(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    line = CommandLine(_PROGRAM, _TARGETS, _define_flags, has_tasks=True)
    values = line.values
    own, arguments = line.parse(argv)
    if values.help:
        print(line.help(__doc__ or ""))  # noqa: T201 - asked for
        return 0
    verb, job = _verb(own, arguments, values)
    target: Target = line.target()
    if verb == "submit":
        return _submit(target, arguments, values)
    return int(getattr(target, verb)(*job))


def _verb(
    own: Sequence[str], arguments: Sequence[str], values: flags.FlagValues
) -> tuple[str, list[str]]:
    """The verb and the job that it is about."""
    verb, *job = own or ["submit"]
    if verb not in _VERBS:
        raise UserError(
            f"unexpected argument {verb!r}: verbs are {', '.join(_VERBS)}; put the tasks' "
            "arguments after --"
        )
    if len(job) != (verb not in ("submit", "list")):
        form = verb if verb in ("submit", "list") else f"{verb} JOB"
        raise UserError(f"{' '.join(own)!r}: write it as `{_PROGRAM} {form} …`")
    if verb != "submit" and (arguments or values.dry_run):
        what = "--dry_run" if values.dry_run else "arguments of tasks"
        raise UserError(f"{verb} takes no {what}; leave them out")
    return verb, job


def _submit(target: Target, arguments: Sequence[str], values: flags.FlagValues) -> int:
    asked = job_flags.build(values, arguments)
    _check_deploy_to(asked)
    spec = target.prepare(job_spec.with_default(asked, target.has_own_machines))
    job_spec.check_chief_works(spec)
    if not values.dry_run:
        return target.submit(spec, values.wait)
    print(remote_target.write(target.render(spec), values.format), end="")  # noqa: T201 - asked for
    return 0


def _check_deploy_to(spec: JobSpec) -> None:
    """Refuses a job that could not deploy its model at the end; a --flagfile is not looked into."""
    deploy_to = spec.argument("deploy_to")
    if spec.module == "trainer.task" and deploy_to and spec.job_dir:
        deploy.check(deploy_to, spec.job_dir, here=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
