"""What a run needs beside its inputs: memory, room on disk, a port, tasks that can take part."""

import logging
from collections.abc import Mapping, Sequence

from tfps import byte_size
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.cluster import own_memory
from tfps.cluster.address import refuse_taken_port
from tfps.cluster.liveness import Liveness
from tfps.cluster.peers import check_peers
from tfps.cluster.preflight import TaskCheck
from tfps.experiment.experiment import NO_EXPORT
from tfps.job_dir.task_name import TaskName
from tfps.planner.memory import (
    ChiefMemory,
    ExportSize,
    JobDisk,
    Placement,
    check_disk_space,
    free_bytes,
    worker_bytes,
)
from trainer.chief.run_inputs import RunInputs
from trainer.console.text_table import text_table

_log = logging.getLogger(__name__)
_HEADER = ("task", "address", "reachable", "answers", "TensorFlow", "what to do")
# It accepts connections, whatever comes after that.
_CONNECTED = (Liveness.ANSWERS, Liveness.SILENT, Liveness.FOREIGN)


def placement_of(inputs: RunInputs) -> Placement:
    """Where the parameters of a run lie."""
    workers = 1 if inputs.cluster.is_replicated else max(1, len(inputs.cluster.workers))
    return Placement.of(inputs.layout, workers, inputs.experiment.train.checkpoint_in_background)


def export_of(inputs: RunInputs) -> ExportSize | None:
    """The size of the model that is exported; None if none is."""
    train = inputs.experiment.train
    if train.export == NO_EXPORT:
        return None
    return ExportSize.of(inputs.layout, train.export_dtype)


def chief_memory(inputs: RunInputs) -> ChiefMemory:
    """What the chief's machine needs."""
    cluster = inputs.cluster
    return ChiefMemory.of(
        placement_of(inputs),
        export_of(inputs),
        has_parameters=not cluster.ps,
        works=cluster.chief_works,
    )


def task_memory(inputs: RunInputs) -> dict[TaskName, int]:
    """How many bytes each worker and ps needs; of no ps where --ps_memory has told of them."""
    cluster, placement = inputs.cluster, placement_of(inputs)
    if not cluster.ps:
        return {}
    worker = worker_bytes(placement)
    found = {TaskName("worker", index): worker for index in range(len(cluster.workers))}
    if inputs.ps_memory is None:
        found |= {TaskName("ps", k): placement.needed_bytes(k) for k in range(placement.ps)}
    return found


def job_disk(inputs: RunInputs) -> JobDisk:
    """What a job that trains keeps in its job_dir."""
    train, export = inputs.experiment.train, export_of(inputs)
    is_there = export is not None and inputs.export.startswith(inputs.job_dir)
    return JobDisk.of(
        inputs.layout,
        train.keep_checkpoints,
        export.file_bytes if export and is_there else 0,
        train.keep_exports if inputs.has_versions else 0,
    )


def check_machine(
    inputs: RunInputs, is_serving: bool = False, output: Mapping[str, int] | None = None
) -> None:
    """Refuses what the chief's own machine cannot do; warns of a disk that will be full in the end.

    Args:
        is_serving: Whether it is this process that has the chief's port.
        output: What is written to the job_dir, bytes by what it is; None for a training, which
            saves checkpoints and exports a model.
    """
    chief_memory(inputs).check(
        own_memory.limit(), "this process" if inputs.cluster.is_local else "the chief"
    )
    if output is None:
        _check_job_disk(inputs)
    else:
        check_disk_space(inputs.job_dir, output)
    if not inputs.cluster.is_local and not is_serving:
        refuse_taken_port(inputs.cluster)


def _check_job_disk(inputs: RunInputs) -> None:
    disk, free = job_disk(inputs), free_bytes(inputs.job_dir)
    check_disk_space(inputs.job_dir, disk.at_once)
    present = len(CheckpointDirectory(inputs.job_dir).names())
    if free is not None and disk.all_bytes - present * disk.checkpoint_bytes > free:
        _log.warning(
            "--job_dir=%s keeps up to %s, but its disk has %s left and may be full before the "
            "training ends; keep fewer (train.keep_checkpoints, train.keep_exports), or delete "
            "what is not needed",
            inputs.job_dir,
            disk,
            byte_size.show(free),
        )


def show_tasks(inputs: RunInputs, limit_seconds: float) -> bool:
    """Prints a table of the tasks.

    Args:
        limit_seconds: How long to wait for tasks that do not answer yet.

    Returns:
        Whether all of them can take part.
    """
    checks = check_peers(inputs.cluster, inputs.job_dir, task_memory(inputs), limit_seconds)
    lines = text_table(_HEADER, _rows(checks)) if checks else ["one process: no tasks to ask"]
    print("\n".join(lines))  # noqa: T201 (what --preflight is for)
    return all(check.is_fit for check in checks)


def _rows(checks: Sequence[TaskCheck]) -> list[tuple[str, ...]]:
    return [
        (
            str(check.task),
            check.address,
            _shown(check.liveness in _CONNECTED),
            _shown(check.answers),
            check.task_info.tensorflow if check.task_info else "unknown",
            check.what_to_do or "nothing",
        )
        for check in checks
    ]


def _shown(value: bool) -> str:
    return "yes" if value else "no"
