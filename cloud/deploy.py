r"""Puts an exported model behind an address: `python -m cloud.deploy --target=kubernetes …`.

    python -m cloud.deploy --target=tfserving --model=runs/census --output=serving

Other verbs come first: `describe NAME`, `undeploy NAME`, `rollback NAME`, `predict NAME`, `list`,
each with the target's own flags; a target says which of them it has.
"""

import os
import shlex
import sys
from collections.abc import Sequence

from absl import flags

from cloud import command_line, deployment_flags, remote_target
from cloud.command_line import CommandLine
from cloud.deployment.deployment import ServerSettings
from cloud.deployment.target import OF_NAME, VERBS, DeployTarget
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.storage.paths import is_local

_TARGETS = {
    "tfserving": "cloud.tfserving.target",
    "kubernetes": "cloud.kubernetes.serving.target",
    "vertex": "cloud.vertex.serving.target",
}
_PROGRAM = "python -m cloud.deploy"


def main(argv: Sequence[str]) -> int:
    """Renders, makes or manages one deployment; 2 for a mistake of the user, 3 of a platform."""
    return command_line.guarded(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    line = CommandLine(_PROGRAM, _TARGETS, deployment_flags.define)
    own, rest = line.parse(argv)
    if line.values.help:
        print(line.help(__doc__ or ""))  # noqa: T201 - asked for
        return 0
    verb, name = _verb([*own, *rest], line.values)
    target: DeployTarget = line.target()
    if verb == "deploy":
        return _deploy(target, line.values)
    return int(getattr(target, verb)(*name))


def check(deploy_to: str, job_dir: str, *, here: bool) -> tuple[str, ...]:
    """Checks a job's --deploy_to; `here` if this machine will deploy, and needs what that takes."""
    try:
        arguments = tuple(shlex.split(deploy_to))
    except ValueError as error:
        raise UserError(f"--deploy_to={deploy_to}: {error}; quote as in a shell") from None
    try:
        _check(arguments, job_dir, here)
    except UserError as error:
        raise UserError(f"--deploy_to={deploy_to}: {error}") from None
    return arguments


def _check(arguments: Sequence[str], job_dir: str, here: bool) -> None:
    line = CommandLine(_PROGRAM, _TARGETS, deployment_flags.define)
    own, rest = line.parse([_PROGRAM, *arguments])
    verb, _ = _verb([*own, *rest], line.values)
    if verb != "deploy":
        raise UserError(f"the verb {verb} deploys no model; leave it out")
    for flag in ("model", "version", "dry_run", "help"):
        if line.values[flag].present:
            raise UserError(f"--{flag} is for the program by itself; leave it out")
    target: DeployTarget = line.target()
    place = os.path.abspath(job_dir) if is_local(job_dir) else job_dir.rstrip("/")
    base = JobDir(place).export
    target.check(ServerSettings(**deployment_flags.fields(line.values, base)), base)
    if here:
        target.check_here()


def _verb(own: Sequence[str], values: flags.FlagValues) -> tuple[str, list[str]]:
    """The verb and the deployment that it is about."""
    verb, *name = own or ["deploy"]
    if verb not in VERBS:
        raise UserError(f"unexpected argument {verb!r}: verbs are {', '.join(VERBS)}")
    if len(name) != (verb in OF_NAME):
        form = f"{verb} NAME" if verb in OF_NAME else verb
        raise UserError(f"{' '.join(own)!r}: write it as `{_PROGRAM} {form} …`")
    if verb != "deploy":
        for flag in ("dry_run", "format", *deployment_flags.OF_DEPLOYMENT):
            if values[flag].present:
                raise UserError(f"{verb} takes no --{flag}; leave it out")
    return verb, name


def _deploy(target: DeployTarget, values: flags.FlagValues) -> int:
    deployment = deployment_flags.build(values)
    if not values.dry_run:
        return target.deploy(deployment)
    text = remote_target.write(target.render(deployment), values.format)
    print(text, end="")  # noqa: T201 - asked for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
