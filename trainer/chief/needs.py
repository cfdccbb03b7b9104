"""What a run needs of memory and of the job_dir's disk, from its inputs."""

from tfps.experiment.experiment import NO_EXPORT
from tfps.job_dir.task_name import TaskName
from tfps.planner.memory import ChiefMemory, ExportSize, JobDisk, Placement, worker_bytes
from trainer.chief.run_inputs import RunInputs


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
