"""What a run needs before any other task is asked: readable data, a writable job_dir."""

import posixpath
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data import manifest as manifests
from tfps.data import schema as schemas
from tfps.data.batches import Batching, read_batches
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.leases.bad_record_log import explain_failure
from tfps.storage import files
from tfps.storage.failures import StorageError


class DataUse(NamedTuple):
    """What a dataset is for.

    Attributes:
        needs_labels: Whether its records must have the task's labels.
    """

    flag: str
    needs_labels: bool = True


TRAINED, EVALUATED = DataUse("--data.train"), DataUse("--data.eval")
_FIRST_RECORDS = 4096  # that are looked at before the work begins


def read_data(task: Task, directory: str, use: DataUse, may_be_cut: bool = False) -> Manifest:
    """Reads a dataset's manifest and holds it against the task.

    Args:
        task: Whose features and labels the records must have.
        may_be_cut: Whether a shard may have fewer bytes than the manifest says, and records may
            lack what they must have: where bad records are passed over.
    """
    flag = use.flag
    if not directory:
        raise UserError(f"{flag} is missing: name the directory that trainer.prepare wrote")
    manifest = manifests.read(directory, flag, may_be_cut)
    wanted = task.schema()
    if not manifest.labels and not use.needs_labels:
        wanted = wanted._replace(labels=())
    schemas.check(manifest, wanted, flag)
    if not manifest.records:
        raise UserError(f"{flag}={directory} holds no records")
    if not may_be_cut:
        schemas.refuse_missing(manifest.counts, manifest.records, wanted, f"{flag}={directory}")
    return manifest


def first_records(data: Manifest, most: int) -> RecordSource:
    """The first records of a dataset: those of one shard, at most so many."""
    shard = next(shard for shard in data.shards if shard.records)
    end = min(shard.records, most)
    return RecordSource(data.path_of(shard), shard.compression, end=end)


def first_labels(task: Task, data: Manifest) -> dict[str, np.ndarray]:
    """What metrics look at in the first records of a dataset, `[records, ...]` by name."""
    values = first_values(task, data)
    return {each.name: values[each.name].numpy() for each in task.measured()}


def first_values(task: Task, data: Manifest) -> dict[str, tf.Tensor]:
    """The features, and the labels that there are, of the first records of a dataset, by name."""
    source = first_records(data, _FIRST_RECORDS)
    schema = task.schema() if data.labels else task.schema()._replace(labels=())
    try:
        features, labels = next(iter(read_batches(source.tensors(), Batching(schema, source.end))))
    except tf.errors.OpError as error:
        held = [*task.features(), *task.labels()]
        raise explain_failure(error, "reading the first records", source, held) from None
    return {**features, **labels}


def check_writable(job_dir: str, task: str) -> None:
    """Writes and deletes a file in the job_dir.

    Args:
        task: Name of this task, since others may do the same at the same time.
    """
    probe = posixpath.join(job_dir, f".writable-{task}")
    try:
        files.make_directories(job_dir)
        files.write(probe, b"")
        files.remove(probe)
    except StorageError as error:
        raise UserError(
            f"--job_dir={job_dir} cannot be written ({error}); name a directory that every "
            "task can write"
        ) from None
