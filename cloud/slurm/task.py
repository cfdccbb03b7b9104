"""One task of a Slurm job, started by the batch script's `srun`.

    python -m cloud.slurm.task nodes JOB              # the node of each task of a job
    python -m cloud.slurm.task resize FILE            # the tasks with the numbers that FILE has
    python -m cloud.slurm.task run JOB MODULE FLAG…   # runs `python -m MODULE FLAG…`

`run` computes TF_CONFIG from SLURM_PROCID and the nodes, and starts a task that dies again, which
srun does not.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from cloud import cluster_in_file
from cloud.slurm.placement import Placement
from tfps.cluster.spec import TF_CONFIG, TF_CONFIG_FILE
from tfps.errors import EXIT_OK, EXIT_USER, UserError
from tfps.job_dir import size
from tfps.job_dir.task_name import TaskName

RESTARTS = "TFPS_RESTARTS"
_LONGEST_WAIT = 8  # seconds before a task is started again


def tf_config(environ: Mapping[str, str], job: str) -> str | None:
    """TF_CONFIG of the task that srun has started here; None for a job without cluster."""
    placement = Placement.of(environ)
    cluster = placement.cluster()
    if cluster.is_local:
        return None
    index = int(environ["SLURM_PROCID"])
    here, planned = environ["SLURMD_NODENAME"], placement.nodes(job)[index]
    if here != planned:
        raise UserError(
            f"{TaskName(job, index)} was started on {here}, but the others look for it on "
            f"{planned}: give srun SLURM_HOSTFILE and --distribution=arbitrary, as the batch "
            "script does"
        )
    return cluster.tf_config(job, index)


def main(argv: Sequence[str]) -> int:
    """Runs one task, or prints where tasks run; the task's exit code, 128 + n after signal n."""
    try:
        match argv[1:]:
            case ["nodes", job]:
                print("\n".join(Placement.of(os.environ).nodes(job)))  # noqa: T201 - asked for
                return EXIT_OK
            case ["resize", left]:
                wanted = size.found(pathlib.Path(left))
                print(Placement.of(os.environ).resized(wanted.workers, wanted.ps))  # noqa: T201
                return EXIT_OK
            case ["run", job, module, *flags]:
                command = [sys.executable, "-m", module, *flags]
                with _told(tf_config(os.environ, job)) as own:
                    return _Task(job, command, {**os.environ, **own}).run()
        raise UserError(f"{' '.join(argv[1:])!r} is no verb with its job; see {argv[0]}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code


@contextlib.contextmanager
def _told(config: str | None) -> Iterator[dict[str, str]]:
    """The variables that tell a task its cluster; a file that one of them names is then deleted."""
    if config is None:
        yield {}
    elif not cluster_in_file.is_needed(config):
        yield {TF_CONFIG: config}
    else:
        config, text = cluster_in_file.split(config)
        with tempfile.NamedTemporaryFile("w", prefix="tfps-cluster-", suffix=".json") as file:
            file.write(text)
            file.flush()
            yield {TF_CONFIG: config, TF_CONFIG_FILE: file.name}


class _Task:
    """A process that is started again when it dies."""

    def __init__(self, job: str, command: Sequence[str], environ: Mapping[str, str]):
        self._job = job
        self._command = command
        self._environ = environ
        self._left = int(environ[RESTARTS])
        self._is_ending = False

    def run(self) -> int:
        # Slurm signals every process of a step, so the task has got the signal itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        wait = 1
        while True:
            code = subprocess.Popen(self._command, env=self._environ).wait()
            code = code if code >= 0 else 128 - code
            if not self._may_restart(code):
                return code
            self._left -= 1
            print(  # noqa: T201 - for the job's log
                f"{self._job} ended with {code}; again in {wait} s", file=sys.stderr, flush=True
            )
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
            if self._is_ending:
                return code

    def _end(self, number: int, frame: object) -> None:
        self._is_ending = True

    def _may_restart(self, code: int) -> bool:
        """A chief that ended by itself has told why; another may resume from the checkpoint."""
        if self._is_ending or not self._left or code in (EXIT_OK, EXIT_USER):
            return False
        return self._job != "chief" or code > 128


if __name__ == "__main__":
    sys.exit(main(sys.argv))
