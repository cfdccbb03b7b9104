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
from tfps.planner.memory import check_disk_space, free_bytes
from trainer.chief import needs
from trainer.chief.run_inputs import RunInputs
from trainer.console.text_table import text_table

_log = logging.getLogger(__name__)
_HEADER = ("task", "address", "reachable", "answers", "TensorFlow", "what to do")
# It accepts connections, whatever comes after that.
_CONNECTED = (Liveness.ANSWERS, Liveness.SILENT, Liveness.FOREIGN)


def check_machine(
    inputs: RunInputs, is_serving: bool = False, output: Mapping[str, int] | None = None
) -> None:
    """Refuses what the chief's own machine cannot do; warns of a disk that will be full in the end.

    Args:
        is_serving: Whether it is this process that has the chief's port.
        output: What is written to the job_dir, bytes by what it is; None for a training, which
            saves checkpoints and exports a model.
    """
    needs.chief_memory(inputs).check(
        own_memory.limit(), "this process" if inputs.cluster.is_local else "the chief"
    )
    if output is None:
        _check_job_disk(inputs)
    else:
        check_disk_space(inputs.job_dir, output)
    if not inputs.cluster.is_local and not is_serving:
        refuse_taken_port(inputs.cluster)


def _check_job_disk(inputs: RunInputs) -> None:
    disk, free = needs.job_disk(inputs), free_bytes(inputs.job_dir)
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
    checks = check_peers(inputs.cluster, inputs.job_dir, needs.task_memory(inputs), limit_seconds)
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
