r"""Starts a job on a platform: `python -m cloud.submit --target=vertex … -- …`.

    python -m cloud.submit --target=local --workers=2 --ps=2 -- \
      --config=configs/census.py --train_data=data/train --job_dir=runs/census

What follows `--` goes to every task. Other verbs come first: `follow JOB`, `cancel JOB`,
`describe JOB`, `list`, each with the target's own flags.
"""

import importlib
import sys
from collections.abc import Sequence

from absl import flags

from cloud import job_flags, requests_text
from cloud.target import Target
from tfps.errors import RunError, UserError

# Each module has `define_flags(values)` and `from_flags(values) -> Target`; loading it loads no
# client of its platform.
_TARGETS = {
    "local": "cloud.local.target",
    "vertex": "cloud.vertex.target",
    "jobset": "cloud.kubernetes.target",
    "tfjob": "cloud.kubernetes.target",
    "slurm": "cloud.slurm.target",
}
_VERBS = ("submit", "follow", "cancel", "describe", "list")


def _defined() -> flags.FlagValues:
    """All flags; an own set, since absl.logging has a --log_dir too."""
    values = flags.FlagValues()
    form = requests_text.FORMATS[0]
    flags.DEFINE_enum("target", None, list(_TARGETS), "Platform.", flag_values=values)
    flags.DEFINE_boolean(
        "dry_run", False, "Prints the requests; sends nothing.", flag_values=values
    )
    flags.DEFINE_enum("format", form, requests_text.FORMATS, "Of --dry_run.", flag_values=values)
    flags.DEFINE_boolean("wait", False, "Follows the job to its end.", flag_values=values)
    for name, default, text in (
        ("wait_seconds", 8 * 24 * 3600.0, "How long to follow a job at most."),
        ("poll_seconds", 10.0, "Between two looks at a job that is followed."),
    ):
        flags.DEFINE_float(name, default, text, lower_bound=0.0, flag_values=values)
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=values)
    job_flags.define(values)
    for module in dict.fromkeys(_TARGETS.values()):
        importlib.import_module(module).define_flags(values)
    return values


def main(argv: Sequence[str]) -> int:
    """Renders, sends or manages one job.

    Args:
        argv: Program name, verb, flags, `--`, and the arguments of every task.

    Returns:
        The exit code: 0, 2 for a mistake of the user, 3 when a platform or a job failed, or what
        the job ended with.
    """
    try:
        values = _defined()
        own, arguments = _split(argv, values)
        if values.help:
            print(f"{__doc__}\n{values.get_help()}")  # noqa: T201 - asked for
            return 0
        verb, job = _verb(own, arguments, values)
        target = _target(values)
        if verb == "submit":
            return _submit(target, arguments, values)
        return int(getattr(target, verb)(*job))
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _split(argv: Sequence[str], values: flags.FlagValues) -> tuple[list[str], list[str]]:
    """Parses the flags; returns what else stands before `--`, and what after."""
    place = argv.index("--") if "--" in argv else len(argv)
    values.set_gnu_getopt(True)  # flags may stand behind the verb
    try:
        own = values(list(argv[:place]))[1:]
    except flags.Error as error:
        message = " ".join(str(error).split())
        raise UserError(f"{message}; `python -m cloud.submit --help` lists the flags") from None
    return own, list(argv[place + 1 :])


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
        raise UserError(f"{' '.join(own)!r}: write it as `python -m cloud.submit {form} …`")
    if verb != "submit" and (arguments or values.dry_run):
        what = "--dry_run" if values.dry_run else "arguments of tasks"
        raise UserError(f"{verb} takes no {what}; leave them out")
    return verb, job


def _target(values: flags.FlagValues) -> Target:
    if values.target is None:
        raise UserError(f"--target is missing; give one of {', '.join(_TARGETS)}")
    by_module = values.flags_by_module_dict()
    for name, module in _TARGETS.items():
        for flag in by_module.get(module, ()):
            if flag.present and module != _TARGETS[values.target]:
                raise UserError(f"--{flag.name} is of --target={name}, not {values.target}")
    found: Target = importlib.import_module(_TARGETS[values.target]).from_flags(values)
    return found


def _submit(target: Target, arguments: Sequence[str], values: flags.FlagValues) -> int:
    spec = target.prepare(job_flags.build(values, arguments))
    if not values.dry_run:
        return target.submit(spec, values.wait)
    print(requests_text.write(target.render(spec), values.format), end="")  # noqa: T201 - asked for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
