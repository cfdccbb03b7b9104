"""What a launcher has on its machine: its output, the tasks' logs, and what they are forks of."""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Self

from cloud import job_spec
from cloud.job_spec import JobSpec
from cloud.local import command, supervisor
from cloud.local.command import Command, TaskEnvironments
from cloud.local.faults import Fault
from cloud.local.process import TaskStarter, check_system
from cloud.local.supervisor import Limits, Link, Supervisor
from cloud.local.task_output import TaskOutput
from tfps.cluster import resources
from tfps.cluster.spec import Cluster
from tfps.errors import EXIT_RESIZED, EXIT_USER, RunError, UserError
from tfps.job_dir import JobDir, size
from tfps.job_dir.size import Size
from tfps.storage.paths import CLOUD_SCHEME

_NOTICE = (
    "security: TensorFlow's servers listen on every interface of this machine without "
    "authentication; whoever reaches the ports can run code; on a shared network use a firewall"
)


class Launch:
    """A job whose tasks run on this machine; a context manager that ends what forks them."""

    def __init__(self, spec: JobSpec, log_dir: pathlib.Path, is_live: bool):
        self._log_dir = log_dir
        self._spec = spec
        is_terminal = sys.stdout.isatty()
        has_progress = any(re.match(r"--?progress(=|$)", each) for each in spec.arguments)
        shown = "live" if is_terminal and is_live else "lines"
        self._progress = None if has_progress else shown
        self._left = log_dir / "new_size.json"
        self._environ = {**_environ(is_terminal), size.VARIABLE: str(self._left)}
        self._starters = contextlib.ExitStack()
        self._starter: TaskStarter | None = None
        self._relay = TaskOutput.on_stdout()

    @classmethod
    def begin(cls, spec: JobSpec, log_dir: str | None, tasks: int, is_live: bool = True) -> Self:
        """Prepares this machine for so many tasks.

        Raises:
            UserError: It cannot run them.
        """
        check_system()
        resources.allow_files_of_launcher(tasks)
        return cls(spec, _made(log_dir_of(spec, log_dir)), is_live)

    def say(self, text: str) -> None:
        """Prints a line of the launcher's own."""
        self._relay.line(supervisor.NAME, text)

    def say_what(self, tasks: Cluster, unused: Sequence[str] = ()) -> None:
        """Prints which tasks there are, where their logs go, and what is not used of the job."""
        for text in (_roles(tasks), f"logs: {self._log_dir}", *unused, _NOTICE):
            self.say(text)

    def commands(
        self, tasks: Cluster, job: JobSpec, gpus: TaskEnvironments | None = None
    ) -> list[Command]:
        """The commands of all tasks of a cluster, be they of this machine or not."""
        return command.commands(
            tasks, job, self._log_dir, self._environ, self._progress, gpus or {}
        )

    def run(
        self,
        commands: Sequence[Command],
        limits: Limits,
        others: int,
        faults: Sequence[Fault] = (),
        link: Link | None = None,
    ) -> int:
        """Runs tasks to their end; the exit code of the job's chief.

        `others` are workers that somebody else starts; `link` leads to other machines.
        """
        self._left.unlink(missing_ok=True)
        starter = self._starter = self._starter or self._started()
        return Supervisor(commands, limits, self._relay, starter, faults, others, link).run()

    def run_in_sizes(
        self, first: Size, run: Callable[[Size], int], new: Callable[[], Size] | None = None
    ) -> int:
        """Runs a job of some size, again as often as its chief asks for another.

        Args:
            first: The size that it begins with.
            run: Runs the job to its end; returns the exit code.
            new: The size that is asked for; by default what the chief has left here.
        """
        now, before = first, None
        while True:
            code = self._tried(run, now) if before else run(now)
            if code == EXIT_RESIZED:
                now, before = (new or self.new_size)(), now
                self.say(f"the run has another size: beginning again with {now}, of {before}")
            elif code == EXIT_USER and before:
                self.say(f"the run cannot have {now}: going back to {before}")
                now, before = before, None
            else:
                return code

    def _tried(self, run: Callable[[Size], int], now: Size) -> int:
        """Runs a size that was asked for; one that this machine cannot start is refused as well."""
        try:
            return run(now)
        except UserError as error:
            self.say(str(error))
            return EXIT_USER

    def new_size(self) -> Size:
        """The size that the chief has asked for at its end."""
        try:
            return size.found(self._left)
        except FileNotFoundError:
            raise RunError(
                f"the chief ended with {EXIT_RESIZED}, but has left no {self._left}"
            ) from None

    def _started(self) -> TaskStarter:
        """Starts the process that forks all tasks, and waits until it has loaded."""
        loaded = _loaded_for(self._spec)
        if loaded:
            self.say("loading TensorFlow, once for all tasks")
        shared = {**self._environ, **self._spec.environment, **command.SHARED}
        starter = self._starters.enter_context(TaskStarter(loaded, shared))
        starter.wait()
        return starter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._starters.close()


def check(spec: JobSpec) -> None:
    """Refuses a job whose tasks this machine cannot start."""
    job_spec.check_chief_works(spec)
    if spec.argument("tensorflow_log"):
        raise UserError("--tensorflow_log is set for every task; give the launcher --log_dir=DIR")
    if not _is_runnable(spec.module):
        raise UserError(
            f"--module={spec.module}: there is no such module to run with `python -m`; write a "
            "dotted name such as trainer.task, and start in the project's directory"
        )


def log_dir_of(spec: JobSpec, named: str | None) -> pathlib.Path | None:
    """The directory of the tasks' logs, None for a temporary one."""
    if named:
        return pathlib.Path(named).absolute()
    is_here = spec.job_dir and "://" not in spec.job_dir
    return pathlib.Path(JobDir(spec.job_dir).logs).absolute() if is_here else None


def _is_runnable(module: str) -> bool:
    try:
        found = importlib.util.find_spec(module)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{module}.__main__")
    except (ModuleNotFoundError, ValueError):
        return False
    return found is not None


def _loaded_for(spec: JobSpec) -> str | None:
    """What is loaded once for all tasks of a job.

    Another module than the trainer loads by itself; where there are GPUs each task does, since a
    fork cannot use CUDA if the process it is of has; and on gs://, whose client has settings of its
    own in workers from the moment TensorFlow is loaded.
    """
    has_gpus = os.path.exists("/dev/nvidiactl") or shutil.which("nvidia-smi")  # only this in WSL
    is_known = spec.module == JobSpec.module and not has_gpus
    is_in_cloud = any(CLOUD_SCHEME in argument for argument in spec.arguments)
    return "trainer.loaded" if is_known and not is_in_cloud else None


def _made(log_dir: pathlib.Path | None) -> pathlib.Path:
    try:
        if log_dir is None:
            return pathlib.Path(tempfile.mkdtemp(prefix="tfps-logs-"))
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make a directory for the logs: {error}; give --log_dir") from error
    return log_dir


def _environ(is_terminal: bool) -> dict[str, str]:
    """The tasks' environment: on a terminal, with the width that the tasks' names leave."""
    if not is_terminal:
        return dict(os.environ)
    width = shutil.get_terminal_size().columns - len("[chief] ")
    return {**os.environ, "COLUMNS": str(max(width, 1))}


def _roles(tasks: Cluster) -> str:
    if tasks.is_local:
        return "one process, no cluster"
    roles = [f"{job} {' '.join(at)}" for job, at in tasks.spec().items()]
    return "cluster: " + "; ".join(roles + ["an evaluator"] * len(tasks.evaluators))
