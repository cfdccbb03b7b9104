"""What a run needs (memory, disk, a port, tasks), and what `--dry_run` prints of it."""

import itertools
import logging
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps import byte_size
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.cluster import resources
from tfps.cluster.liveness import Liveness
from tfps.cluster.preflight import TaskCheck, Wanted, check_tasks
from tfps.cluster.spec import Cluster, refuse_taken_port
from tfps.data.record_source import RecordSource, read_batches
from tfps.experiment.experiment import NO_EXPORT
from tfps.job_dir.task_name import TaskName
from tfps.leases.lease import EpochOrder
from tfps.planner.memory import (
    PROCESS_BYTES,
    WORKING_BYTES,
    ChiefMemory,
    ExportSize,
    JobDisk,
    Placement,
    Share,
    check_disk_space,
    evaluator_bytes,
    free_bytes,
    worker_bytes,
)
from tfps.planner.traffic import WireBytes
from trainer.chief.run_inputs import RunInputs, RunPlan, RunSettings
from trainer.console.text_table import text_table

_log = logging.getLogger(__name__)
_HEADER = ("task", "address", "reachable", "answers", "TensorFlow", "what to do")
# It accepts connections, whatever comes after that.
_CONNECTED = (Liveness.ANSWERS, Liveness.SILENT, Liveness.FOREIGN)
_BATCHES = 8  # from which the distinct rows of a step are counted
_MEMORY = ("memory", "holds", "in flight", "snapshot", "graph", "working", "process", "needs")


def placement_of(inputs: RunInputs) -> Placement:
    cluster, train = inputs.settings.cluster, inputs.settings.experiment.train
    workers = 1 if cluster.is_replicated else max(1, len(cluster.workers))
    return Placement.of(inputs.plan.layout, workers, train.checkpoint_in_background)


def export_of(inputs: RunInputs) -> ExportSize | None:
    """The size of the model that is exported; None if none is."""
    train = inputs.settings.experiment.train
    if train.export == NO_EXPORT:
        return None
    return ExportSize.of(inputs.plan.layout, train.export_dtype)


def chief_memory(inputs: RunInputs) -> ChiefMemory:
    cluster = inputs.settings.cluster
    return ChiefMemory.of(
        placement_of(inputs),
        export_of(inputs),
        has_parameters=not cluster.ps,
        works=cluster.chief_works,
    )


def task_memory(inputs: RunInputs) -> dict[TaskName, int]:
    """How many bytes each worker and ps needs; of no ps where --ps_memory names it."""
    cluster, placement = inputs.settings.cluster, placement_of(inputs)
    if not cluster.ps:
        return {}
    worker = worker_bytes(placement)
    found = {TaskName("worker", index): worker for index in range(len(cluster.workers))}
    if inputs.settings.ps_memory is None:
        found |= {TaskName("ps", k): placement.needed_bytes(k) for k in range(placement.ps)}
    return found


def job_disk(inputs: RunInputs) -> JobDisk:
    """What a job that trains keeps in its job_dir."""
    settings, export = inputs.settings, export_of(inputs)
    train = settings.experiment.train
    is_there = not settings.export or settings.export.startswith(settings.job_dir)
    return JobDisk.of(
        inputs.plan.layout,
        train.keep_checkpoints,
        export.file_bytes if export and is_there else 0,
        0 if settings.export else train.keep_exports,
        train.largest_increment if train.export_deltas else 0.0,
    )


def check_machine(
    inputs: RunInputs, is_serving: bool = False, output: Mapping[str, int] | None = None
) -> None:
    """Refuses what the chief's machine cannot do; warns of a disk that will be full.

    `is_serving` if this process has the chief's port; `output` is bytes written by kind, None for a
    training.
    """
    cluster, job_dir = inputs.settings.cluster, inputs.settings.job_dir
    process = "this process" if cluster.is_local else "the chief"
    chief_memory(inputs).check(resources.memory_limit(), process)
    if output is None:
        _check_job_disk(inputs)
    else:
        check_disk_space(job_dir, output)
    if not cluster.is_local and not is_serving:
        refuse_taken_port(cluster)


def _check_job_disk(inputs: RunInputs) -> None:
    disk, job_dir = job_disk(inputs), inputs.settings.job_dir
    free = free_bytes(job_dir)
    check_disk_space(job_dir, disk.at_once)
    present = len(CheckpointDirectory(job_dir).names())
    if free is not None and disk.all_bytes - present * disk.checkpoint_bytes > free:
        _log.warning(
            "--job_dir=%s keeps up to %s, but its disk has %s left and may be full before the "
            "training ends; keep fewer (train.keep_checkpoints, train.keep_exports), or delete "
            "what is not needed",
            job_dir,
            disk,
            byte_size.show(free),
        )


def show_tasks(inputs: RunInputs, limit_seconds: float) -> bool:
    """Prints a table of the tasks after at most `limit_seconds`; whether all can take part."""
    cluster = inputs.settings.cluster
    wanted = Wanted(cluster.tasks(), inputs.settings.job_dir, task_memory(inputs))
    checks = check_tasks(cluster.peers(), wanted, limit_seconds)
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


def dry_run_lines(inputs: RunInputs) -> list[str]:
    """The plan of a run, without asking any other task."""
    settings, placement = inputs.settings, placement_of(inputs)
    return [
        f"{settings.experiment.name} {_where(settings.cluster, placement)}",
        "",
        *text_table(
            ("ps", "holds", "rows", "parameters", "slots", "marks", "per row", "share"),
            [
                (
                    f"ps {share.ps}",
                    share.name,
                    f"{share.rows:,}",
                    byte_size.show(share.parameter_bytes),
                    byte_size.show(share.slot_bytes),
                    byte_size.show(share.mark_bytes),
                    _per_row(share),
                    f"{share.fraction:.1%}",
                )
                for share in placement.shares
            ],
            right=range(1, 8),
        ),
        "",
        *_memory(placement),
        *_others(inputs, placement),
        *disk_lines(inputs),
        *_single(inputs.plan),
        *(
            []
            if settings.cluster.is_replicated
            else ["", *_graph(settings, placement), _wire(inputs)]
        ),
    ]


def _per_row(share: Share) -> str:
    """Bytes of a row of tables, with its slots and marks."""
    is_flat = share.name in ("dense", "state")
    return "" if is_flat else f"{share.total_bytes // share.rows:,} B"


def _where(cluster: Cluster, placement: Placement) -> str:
    if cluster.is_local:
        return "in this process"
    if cluster.is_replicated:
        return f"in each of {1 + len(cluster.workers)} replicas, as on one ps"
    return f"on {placement.ps} ps"


def _memory(placement: Placement) -> list[str]:
    rows = [
        (
            f"ps {ps}",
            byte_size.show(placement.held_bytes(ps)),
            byte_size.show(placement.in_flight_bytes(ps)),
            byte_size.show(placement.snapshot_bytes(ps)),
            byte_size.show(placement.graph.ps_bytes),
            byte_size.show(WORKING_BYTES),
            byte_size.show(PROCESS_BYTES),
            byte_size.show(placement.needed_bytes(ps)),
        )
        for ps in range(placement.ps)
    ]
    return [
        *text_table(_MEMORY, rows, right=range(1, len(_MEMORY))),
        f"all ps hold {byte_size.show(placement.all_bytes)}; the fullest "
        f"{placement.imbalance:.1%} more than the mean",
    ]


def _others(inputs: RunInputs, placement: Placement) -> list[str]:
    """What processes need besides the ps, and the exported model."""
    cluster, train = inputs.settings.cluster, inputs.settings.experiment.train
    size = ExportSize.of(inputs.plan.layout, train.export_dtype)
    process = "this process" if cluster.is_local else "chief"
    found = [_chief(inputs, process)]
    if cluster.ps:
        worker = byte_size.show(worker_bytes(placement))
        found.append(f"worker: needs about {worker} beside its batches")
        evaluator = byte_size.show(evaluator_bytes(placement, size))
        found.append(f"evaluator: would need about {evaluator}, for it holds whole checkpoints")
    if train.export != NO_EXPORT:
        held = f"{process} holds {byte_size.show(size.whole_bytes)} of it for a moment"
        if size.in_slices:
            groups = ", ".join(size.in_slices)
            held += f"; {groups} in slices, of which nobody holds more than a chunk"
        found.append(f"export: {byte_size.show(size.file_bytes)} in {train.export_dtype}; {held}")
    return found


def _chief(inputs: RunInputs, process: str) -> str:
    """What the chief's machine needs, with the worker next to it."""
    memory, cluster = chief_memory(inputs), inputs.settings.cluster
    said = f"{process}: needs about {byte_size.show(memory.needed_bytes)}"
    if not cluster.chief_works:
        return said
    return (
        f"{said} beside its worker's batches, {byte_size.show(memory.worker_bytes)} of it for "
        f"{cluster.of_chief_worker.task}"
    )


def disk_lines(inputs: RunInputs) -> list[str]:
    """What the job_dir keeps, against what is free there."""
    job_dir = inputs.settings.job_dir
    free = free_bytes(job_dir)
    place = f"its disk has {byte_size.show(free)} left" if free is not None else "in a bucket"
    return [f"disk: {job_dir} keeps up to {job_disk(inputs)}; {place}"]


def _single(plan: RunPlan) -> list[str]:
    """What a step asks of one ps alone."""
    layout = plan.layout
    if layout.parts == 1:
        return []
    said = f"ps 0 keeps the progress of leases, ps {layout.staleness_part} counts staleness"
    if plan.model.loss_scaling:
        said += f", ps {layout.loss_scale_part} has the loss scale"
    return [said]


def _graph(settings: RunSettings, placement: Placement) -> list[str]:
    """What the graph costs on a cluster, estimated."""
    if settings.cluster.is_local:
        return []
    graph = placement.graph
    return [
        f"graph: about {byte_size.show(graph.total_bytes)}, sent to every task "
        f"({byte_size.show(graph.sent_bytes)} in all); {graph.chief_cpu_seconds:.0f} s of the "
        f"chief's CPU for what the ps add to it; {byte_size.show(graph.worker_bytes)} more memory "
        "on each worker"
    ]


def _wire(inputs: RunInputs) -> str:
    settings, datasets, plan = inputs
    train, data = settings.experiment.train, datasets.train.of_epoch(0)
    shard = next(shard for shard in data.shards if shard.records)
    path = data.path_of(shard)
    source = RecordSource(path, shard.compression).tensors()
    batching = EpochOrder.batching(settings.experiment)._replace(block=0)
    batches = read_batches(source, batching, tf.constant(train.seed, tf.int64))
    found = WireBytes.of(
        plan.model,
        plan.layout,
        train.wire_dtype,
        itertools.islice(batches, _BATCHES),
        batching.examples_per_record,
    )
    fixed = f"; {byte_size.show(found.fixed_bytes)} that no step changes go to each worker once"
    return (
        f"wire: {found.per_example:,.0f} bytes per example in {train.wire_dtype} at batch size "
        f"{train.batch_size}: {found.table_bytes / found.examples:,.0f} for "
        f"{found.rows / found.steps:,.0f} distinct rows a step, "
        f"{found.dense_bytes / found.examples:,.0f} for dense parameters "
        f"(the first {found.steps} batches of {path})"
        f"{fixed if found.fixed_bytes else ''}"
    )
