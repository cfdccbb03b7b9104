"""Starts every task of a cluster on this machine: `python -m cloud.local`.

    python -m cloud.local --workers=2 --ps=2 -- --config=configs/census.py --job_dir=/tmp/census

What follows `--` goes to every task. The run ends when the chief ends, with its exit code.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from absl import flags

from cloud import chaos, supervisor
from cloud.command import commands
from cloud.ports import Ports
from cloud.process import check_system
from cloud.relay import Relay
from tfps.cluster import Cluster
from tfps.errors import RunError, UserError

_HOST = "127.0.0.1"
_NOTICE = (
    "security: TensorFlow's servers listen on every interface of this machine without "
    "authentication; whoever reaches the ports can run code; on a shared network use a firewall"
)
# An own set of flags: absl.logging has a --log_dir too.
_FLAGS = flags.FlagValues()


def _define_flags() -> None:
    def integer(name: str, default: int, least: int, text: str) -> None:
        flags.DEFINE_integer(name, default, text, lower_bound=least, flag_values=_FLAGS)

    def string(name: str, default: str | None, text: str) -> None:
        flags.DEFINE_string(name, default, text, flag_values=_FLAGS)

    integer("workers", 2, 0, "Number of workers.")
    integer("ps", 2, 0, "Number of ps.")
    flags.DEFINE_boolean(
        "evaluator", False, "Adds an evaluator; the workers then only train.", flag_values=_FLAGS
    )
    integer("max_restarts", 3, 0, "How often each task is restarted when it dies.")
    integer("grace_seconds", 30, 0, "Time for the chief to end after Ctrl-C or SIGTERM.")
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Prints the chief's plan for so many tasks; starts none.",
        flag_values=_FLAGS,
    )
    string(
        "chaos",
        None,
        "Faults to inject, such as kill:worker:*@30s,stop:ps:0@60s+10s,term:chief@9s.",
    )
    integer("chaos_seed", 0, 0, "Seed of what --chaos leaves open.")
    string("module", "trainer.task", "Module that every task runs.")
    string("log_dir", None, "Directory of the tasks' logs; default: JOB_DIR/logs if it is local.")
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=_FLAGS)


_define_flags()


def main(argv: Sequence[str]) -> int:
    """Runs a local cluster.

    Args:
        argv: Program name, flags, `--`, and the arguments of every task.

    Returns:
        The exit code: the chief's, or 2 for a mistake of the user, or 3 for a run that failed.
    """
    try:
        own, args = _split(argv)
        if _FLAGS.help:
            print(f"{__doc__}\n{_FLAGS.get_help()}")  # noqa: T201 - asked for
            return 0
        if own:
            raise UserError(f"unexpected argument {own[0]!r}: put the tasks' arguments after --")
        return _run(args)
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    except KeyboardInterrupt:  # before the first task was started, or after the last had ended
        return 128 + signal.SIGINT


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parses the launcher's flags; returns what else stands before `--`, and what after."""
    place = argv.index("--") if "--" in argv else len(argv)
    try:
        own = _FLAGS(list(argv[:place]))[1:]
    except flags.Error as error:
        raise UserError(f"{error}; `python -m cloud.local --help` lists the flags") from error
    return own, list(argv[place + 1 :])


def _run(args: Sequence[str]) -> int:
    _check(args)
    faults = _faults()
    if _FLAGS.dry_run:
        return _plan(args)
    log_dir = _log_dir(args)
    is_terminal = sys.stdout.isatty()
    has_progress = any(re.match(r"--?progress(=|$)", arg) for arg in args)
    progress = None if has_progress else "bar" if is_terminal and not _FLAGS.chaos else "lines"
    relay = Relay(sys.stdout.fileno(), is_terminal, is_terminal and "NO_COLOR" not in os.environ)
    limits = supervisor.Limits(grace_seconds=_FLAGS.grace_seconds, max_restarts=_FLAGS.max_restarts)
    with Ports(_tasks()) as ports:
        tasks = _cluster(ports.numbers)
        for text in (_roles(tasks), f"logs: {log_dir}", _NOTICE):
            relay.line(supervisor.NAME, text)
        planned = commands(tasks, _FLAGS.module, args, log_dir, _environ(is_terminal), progress)
        return supervisor.Supervisor(planned, limits, relay, faults).run()


def _faults() -> list[chaos.Fault]:
    if not _FLAGS.chaos:
        return []
    tasks = {"chief": 1, "worker": _FLAGS.workers, "ps": _FLAGS.ps}
    tasks["evaluator"] = int(_FLAGS.evaluator)
    return chaos.parse(_FLAGS.chaos, tasks, _FLAGS.chaos_seed)


def _plan(args: Sequence[str]) -> int:
    """Lets a chief print its plan for so many tasks and end; it contacts nobody."""
    tasks = _cluster(range(1, 1 + _tasks()))  # ports that nobody opens
    *_, chief = commands(tasks, _FLAGS.module, args, pathlib.Path(), os.environ, None)
    argv = [arg for arg in chief.argv if not arg.startswith("--tensorflow_log=")]
    return subprocess.run([*argv, "--dry_run"], env=chief.environ, check=False).returncode


def _environ(is_terminal: bool) -> dict[str, str]:
    """The tasks' environment: on a terminal, with the width that the tasks' names leave."""
    if not is_terminal:
        return dict(os.environ)
    width = shutil.get_terminal_size().columns - len("[chief] ")
    return {**os.environ, "COLUMNS": str(max(width, 1))}


def _check(args: Sequence[str]) -> None:
    check_system()
    workers, ps, module = _FLAGS.workers, _FLAGS.ps, _FLAGS.module
    if not workers:
        mend = (
            f"for one process without a cluster run `python -m {module} --mode=local`"
            if not ps
            else "a cluster needs a worker: give --workers=1 or more"
        )
        raise UserError(f"--workers=0 --ps={ps} is no cluster; {mend}")
    if not args:
        raise UserError(
            "the tasks have no arguments: put them after --, for example "
            "`python -m cloud.local --workers=2 --ps=2 -- --config=configs/census.py`"
        )
    if any(re.match(r"--?tensorflow_log(=|$)", arg) for arg in args):
        raise UserError("--tensorflow_log is set for every task; give the launcher --log_dir=DIR")
    if not _is_runnable(module):
        raise UserError(
            f"--module={module}: there is no such module to run with `python -m`; write a dotted "
            "name such as trainer.task, and start in the project's directory"
        )


def _is_runnable(module: str) -> bool:
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        found = importlib.util.find_spec(module)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{module}.__main__")
    except (ModuleNotFoundError, ValueError):
        return False
    return found is not None


def _log_dir(args: Sequence[str]) -> pathlib.Path:
    """The directory of the logs, made if need be."""
    job_dir = _job_dir(args)
    try:
        if _FLAGS.log_dir:
            path = pathlib.Path(_FLAGS.log_dir)
        elif job_dir and "://" not in job_dir:
            path = pathlib.Path(job_dir, "logs")
        else:
            return pathlib.Path(tempfile.mkdtemp(prefix="tfps-logs-"))
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make a directory for the logs: {error}; give --log_dir") from error
    return path.absolute()


def _job_dir(args: Sequence[str]) -> str:
    """The value of the last --job_dir among the tasks' arguments, or nothing."""
    found = ""
    for place, arg in enumerate(args):
        if match := re.fullmatch(r"--?job_dir(?:=(.*))?", arg, re.DOTALL):
            after = args[place + 1] if place + 1 < len(args) else ""
            found = after if match[1] is None else match[1]
    return found


def _tasks() -> int:
    return 1 + _FLAGS.workers + _FLAGS.ps + _FLAGS.evaluator


def _cluster(ports: Sequence[int]) -> Cluster:
    addresses = tuple(f"{_HOST}:{port}" for port in ports)
    first_ps = 1 + _FLAGS.workers
    evaluator = first_ps + _FLAGS.ps
    return Cluster(
        chief=addresses[:1],
        workers=addresses[1:first_ps],
        ps=addresses[first_ps:evaluator],
        evaluators=addresses[evaluator:],
    )


def _roles(tasks: Cluster) -> str:
    roles = [f"{job} {' '.join(at)}" for job, at in tasks.spec().items()]
    return "cluster: " + "; ".join(roles + ["an evaluator"] * len(tasks.evaluators))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
