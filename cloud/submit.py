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

from cloud import documents, job_flags
from cloud.target import Target
from tfps.errors import RunError, UserError

# Each module has `define_flags(values)` and `from_flags(values) -> Target`; loading it loads no
# client of its platform.
_TARGETS = {
    "local": "cloud.local_target",
}
_VERBS = ("submit", "follow", "cancel", "describe", "list")
_FLAGS = flags.FlagValues()


def _define_flags() -> None:
    flags.DEFINE_enum("target", None, list(_TARGETS), "Platform.", flag_values=_FLAGS)
    flags.DEFINE_boolean(
        "dry_run", False, "Prints the requests; sends nothing.", flag_values=_FLAGS
    )
    flags.DEFINE_enum(
        "format", documents.FORMATS[0], documents.FORMATS, "Of --dry_run.", flag_values=_FLAGS
    )
    flags.DEFINE_boolean("wait", False, "Follows the job to its end.", flag_values=_FLAGS)
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=_FLAGS)
    job_flags.define(_FLAGS)
    for module in _TARGETS.values():
        importlib.import_module(module).define_flags(_FLAGS)


_define_flags()


def main(argv: Sequence[str]) -> int:
    """Renders, sends or manages one job.

    Args:
        argv: Program name, verb, flags, `--`, and the arguments of every task.

    Returns:
        The exit code: 0, 2 for a mistake of the user, 3 when a platform or a job failed, or what
        the job ended with.
    """
    try:
        own, arguments = _split(argv)
        if _FLAGS.help:
            print(f"{__doc__}\n{_FLAGS.get_help()}")  # noqa: T201 - asked for
            return 0
        verb, job = _verb(own, arguments)
        target = _target()
        if verb == "submit":
            return _submit(target, arguments)
        return int(getattr(target, verb)(*job))
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parses the flags; returns what else stands before `--`, and what after."""
    place = argv.index("--") if "--" in argv else len(argv)
    _FLAGS.set_gnu_getopt(True)  # flags may stand behind the verb
    try:
        own = _FLAGS(list(argv[:place]))[1:]
    except flags.Error as error:
        message = " ".join(str(error).split())
        raise UserError(f"{message}; `python -m cloud.submit --help` lists the flags") from None
    return own, list(argv[place + 1 :])


def _verb(own: Sequence[str], arguments: Sequence[str]) -> tuple[str, list[str]]:
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
    if verb != "submit" and (arguments or _FLAGS.dry_run):
        what = "--dry_run" if _FLAGS.dry_run else "arguments of tasks"
        raise UserError(f"{verb} takes no {what}; leave them out")
    return verb, job


def _target() -> Target:
    if _FLAGS.target is None:
        raise UserError(f"--target is missing; give one of {', '.join(_TARGETS)}")
    by_module = _FLAGS.flags_by_module_dict()
    for name, module in _TARGETS.items():
        for flag in by_module.get(module, ()):
            if flag.present and name != _FLAGS.target:
                raise UserError(f"--{flag.name} is of --target={name}, not {_FLAGS.target}")
    found: Target = importlib.import_module(_TARGETS[_FLAGS.target]).from_flags(_FLAGS)
    return found


def _submit(target: Target, arguments: Sequence[str]) -> int:
    spec = target.prepare(job_flags.build(_FLAGS, arguments))
    if not _FLAGS.dry_run:
        return target.submit(spec, _FLAGS.wait)
    print(documents.text(target.render(spec), _FLAGS.format), end="")  # noqa: T201 - asked for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
