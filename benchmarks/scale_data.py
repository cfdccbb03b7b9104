"""What a large dataset costs the chief. See `benchmarks.scale`."""

import collections
import dataclasses
import json
import os
import pathlib
import resource
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from configs.smoke import Smoke
from tfps.data import manifest as manifests
from tfps.data.manifest import Manifest
from tfps.data.record_index import STRIDE, RecordIndex
from tfps.data.shards import Shard
from tfps.data.training_data import TrainingData
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState

SHARDS_OF_TASK, SHARD_RECORDS, _RECORD_BYTES = 100, 100_000, 200
_ORDER = EpochOrder(batch_size=512, shuffle_buffer=8192, seed=0)
_LEASE_BATCHES = 160


def dataset(tasks: Sequence[int]) -> list[dict]:
    """Reading, planning, leasing and accounting of datasets of 10 million records for each task.

    The shards are files of that size without content. A lease has 160 batches of 512 records at
    most; each task has two in flight, and every one of the epoch is taken and finished.
    """
    rows: dict[tuple[str, str], dict[int, float]] = collections.defaultdict(dict)
    for count in sorted(tasks):  # the process never holds less than it did
        with tempfile.TemporaryDirectory() as directory:
            written = _write(directory, count)
            rows["manifest and index", "MB"][count] = written / 1e6
            began = time.process_time()
            data = manifests.read(directory)
            rows["chief: CPU to read manifest, index and sizes", "s"][count] = _since(began)
        began = time.process_time()
        training = TrainingData.of(data)
        queue = LeaseQueue(training, _ORDER, 1, QueueState(), BadRecords(training, (), 0))
        rows["chief: CPU to plan an epoch", "s"][count] = _since(began)
        began = time.process_time()
        leases, largest = _train(queue, 2 * count)
        rows["chief: CPU to cut and account a lease", "ms"][count] = _since(began) / leases * 1e3
        assert queue.trained == data.records
        rows["chief: what a checkpoint keeps of the queue", "B"][count] = largest
        rows["chief: memory with the dataset", "MB"][count] = peak_megabytes()
    return [{"what": what, "unit": unit, "by_tasks": found} for (what, unit), found in rows.items()]


def made_up_dataset(tasks: int) -> Manifest:
    """Ten million records for each task, in shards of 100,000."""
    shards = tuple(
        Shard(f"x-{k:06d}", SHARD_RECORDS, SHARD_RECORDS * _RECORD_BYTES, "00000000")
        for k in range(SHARDS_OF_TASK * tasks)
    )
    offsets = np.arange(0, SHARD_RECORDS, STRIDE, dtype=np.int64) * _RECORD_BYTES
    index = RecordIndex(STRIDE, tuple(offsets.copy() for _ in shards))
    schema = Smoke().schema()
    features, labels = ([each.schema() for each in some] for some in schema)
    return Manifest("x", features, labels, shards, index, directory="/nowhere")


def peak_megabytes() -> float:
    """The most that this process has held, TensorFlow included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _write(directory: str, tasks: int) -> int:
    """Writes a dataset whose files have their sizes and no content; bytes of what describes it."""
    made = made_up_dataset(tasks)
    for shard in made.shards:
        with open(os.path.join(directory, shard.file), "wb") as file:
            file.truncate(shard.bytes)
    manifests.write(dataclasses.replace(made, directory=directory))
    names = manifests.FILE, manifests.index_file(made.name)
    return sum((pathlib.Path(directory) / name).stat().st_size for name in names)


def _train(queue: LeaseQueue, in_flight: int) -> tuple[int, int]:
    """Takes and finishes every lease; how many there were, and bytes of the state in the end."""
    doing = collections.deque()
    leases = 0
    while True:
        while len(doing) < in_flight and (lease := queue.take(_LEASE_BATCHES)):
            doing.append(lease)
            leases += 1
        if not doing:
            return leases, len(json.dumps(queue.state().to_json()))
        lease = doing.popleft()
        queue.finish(lease, lease.records, 0)


def _since(began: float) -> float:
    return time.process_time() - began
