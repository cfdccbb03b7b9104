"""What a run needs beside its inputs: room on disk, a free port, and tasks that can take part."""

from collections.abc import Sequence

from tfps.cluster.address import refuse_taken_port
from tfps.cluster.liveness import Liveness
from tfps.cluster.peers import check_peers
from tfps.cluster.preflight import TaskCheck
from tfps.experiment.experiment import NO_EXPORT
from tfps.planner.disk import check_disk_space
from tfps.planner.export_size import ExportSize
from trainer.chief.run_inputs import RunInputs
from trainer.console.text_table import text_table

_HEADER = ("task", "address", "reachable", "answers", "TensorFlow", "what to do")
# It accepts connections, whatever comes after that.
_CONNECTED = (Liveness.ANSWERS, Liveness.SILENT, Liveness.FOREIGN)


def check_machine(inputs: RunInputs, is_serving: bool = False, saves: bool = True) -> None:
    """Refuses what the chief's own machine cannot do.

    Args:
        inputs: The run's, checked.
        is_serving: Whether it is this process that has the chief's port.
        saves: Whether the run saves checkpoints.

    Raises:
        UserError: If a checkpoint does not fit on the disk, or the chief's port is taken.
    """
    train = inputs.experiment.train
    is_exported = train.export != NO_EXPORT and inputs.export.startswith(inputs.job_dir)
    export = ExportSize.of(inputs.layout, train.export_dtype) if is_exported else None
    if saves:
        check_disk_space(inputs.layout, inputs.job_dir, export.file_bytes if export else 0)
    if not inputs.cluster.is_local and not is_serving:
        refuse_taken_port(inputs.cluster)


def show_tasks(inputs: RunInputs, limit_seconds: float) -> bool:
    """Prints a table of the tasks.

    Args:
        inputs: The run's, checked.
        limit_seconds: How long to wait for tasks that do not answer yet.

    Returns:
        Whether all of them can take part.
    """
    checks = check_peers(inputs.cluster, inputs.job_dir, limit_seconds)
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
