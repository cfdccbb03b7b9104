"""What starts one task of a local cluster, as data."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping

from cloud.job_spec import JobSpec
from cloud.local.gpus import TaskEnvironments
from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, TF_CONFIG_FILE, Cluster
from tfps.job_dir.task_name import TaskName


@dataclasses.dataclass(frozen=True)
class Command:
    """The command line and environment of one task.

    Attributes:
        log: File of the task's native log, which may never come to be.
    """

    job: str
    index: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: pathlib.Path

    @property
    def name(self) -> str:
        """The task for people: "chief", "worker 0"."""
        return TaskName(self.job, self.index).label


def commands(
    tasks: Cluster,
    spec: JobSpec,
    log_dir: pathlib.Path,
    environ: Mapping[str, str],
    progress: str | None,
    gpus: TaskEnvironments,
) -> list[Command]:
    """The commands of every task, servers first, then the evaluator, the chief last.

    Args:
        environ: The launcher's environment; a cluster it may describe is left out.
        progress: How the chief shows progress, "live" or "lines"; None adds no such flag.
        gpus: What says which GPUs a task may use, by job and index; none for all of them.
    """
    inherited = {
        name: value
        for name, value in environ.items()
        if name not in (TF_CONFIG, TF_CONFIG_FILE, CLUSTER_SPEC)
    }
    jobs = {"ps": tasks.ps, "worker": tasks.workers, "evaluator": tasks.evaluators}
    found = []
    for job, addresses in {**jobs, "chief": tasks.chief}.items():
        for index in range(len(addresses)):
            log = log_dir / f"{job}-{index}.log"
            argv = [sys.executable, "-m", spec.module, *spec.arguments, f"--tensorflow_log={log}"]
            if job == "chief" and progress:
                argv.append(f"--progress={progress}")
            own = {**spec.environment, "PYTHONUNBUFFERED": "1"}
            if not tasks.is_local:
                own[TF_CONFIG] = tasks.tf_config(job, index)
            own |= gpus.get((job, index), {})
            found.append(Command(job, index, tuple(argv), inherited | own, log))
    return found
