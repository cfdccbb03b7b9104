"""A task of a cluster whose chief measures what crosses the wire; run by the local launcher.

For each dtype of the wire the chief trains one shard, in which everything is traced and connected,
and then, between two readings of the connections' counters, the others. It prints one JSON line.
"""

import dataclasses
import itertools
import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

os.environ["GRPC_FAIL_FAST"] = "use_caller"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import flags

from tests.integration.tcp_counters import bytes_to, resident_peak
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.server import ServerOptions, serve
from tfps.cluster.tf_config import decode
from tfps.coordinator.connector import Connector
from tfps.coordinator.executor import ClusterExecutor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data import manifest
from tfps.data.manifest import Manifest
from tfps.data.record_source import Batching, RecordSource, read_batches
from tfps.data.training_data import TrainingData
from tfps.experiment import overrides
from tfps.experiment.experiment import Experiment
from tfps.job_dir import JobDir
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.lease import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.leases.queue import LeaseQueue, QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.planner.memory import Placement
from tfps.planner.traffic import WireBytes
from tfps.store.layout import StoreLayout
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.closures import Closures
from tfps.worker.step import Step

_FLAGS = flags.FLAGS
flags.DEFINE_string("config", None, "Config.")
flags.DEFINE_string("data", None, "Data, of at least two shards.")
flags.DEFINE_string("job_dir", None, "Where servers look for a report.")
flags.DEFINE_string("tensorflow_log", None, "Given by the launcher; not used.")
flags.DEFINE_string("progress", None, "Given by the launcher; not used.")


def main() -> None:
    _FLAGS(sys.argv)
    cluster = decode(os.environ)
    if cluster.job != "chief":
        serve(
            cluster, JobDir(_FLAGS.job_dir), ServerOptions(chief_lost_seconds=1), threading.Event()
        )
        return
    experiment = overrides.load(_FLAGS.config)
    data = manifest.read(_FLAGS.data)
    train = experiment.train
    model = StatelessModel(experiment.task, train.seed, train.dense_table_bytes)
    layout = StoreLayout.of(model, Rules.of(experiment.task, model), len(cluster.ps))
    ports = [int(address.rsplit(":", 1)[1]) for address in (*cluster.workers, *cluster.ps)]
    # Counted before there are other devices, on which its functions would be registered.
    limits = {
        dtype: WireBytes.of(model, layout, dtype, batches(experiment, data))
        for dtype in ("float32", "bfloat16")
    }
    executor = Connector(
        cluster, JobDir(_FLAGS.job_dir), 60, min_workers=0, again=False, memory={}
    ).connect()
    found = {
        dtype: {
            "limit": limit.dense_bytes + limit.table_bytes,
            "fixed": limit.fixed_bytes,
            "steps": limit.steps,
            **measured(experiment, model, executor, data, ports, dtype),
        }
        for dtype, limit in limits.items()
    }
    placement = Placement.of(layout, len(cluster.workers))
    memory = {
        "needed": [placement.needed_bytes(ps) for ps in range(placement.ps)],
        "peak": [resident_peak(port) for port in ports[len(cluster.workers) :]],
    }
    print(json.dumps({"wire": found, "memory": memory}), flush=True)
    os._exit(0)


def batches(experiment: Experiment, data: Manifest) -> Any:
    """The batches that closures make of all shards but the first, which are one lease each."""
    order = EpochOrder.of(experiment)
    chunks = order.chunks(enumerate(data.shards), 0)
    assert len(chunks) == len(data.shards)
    return itertools.chain.from_iterable(
        read_batches(
            RecordSource(data.path_of(data.shards[chunk.shard])).tensors(),
            Batching(experiment.task.schema(), order.batch_size, order.block_batches),
            order.shard_seed(0, chunk.shard),
        )
        for chunk in chunks[1:]
    )


def measured(
    experiment: Experiment,
    model: StatelessModel,
    executor: ClusterExecutor,
    data: Manifest,
    ports: Sequence[int],
    dtype: str,
) -> dict[str, int]:
    """Bytes and steps of training all shards but the first."""
    task, train = experiment.task, dataclasses.replace(experiment.train, wire_dtype=dtype)
    store = ParameterStore(model, Rules.of(task, model), executor.devices, train.seed, dtype)
    progress = LeaseProgress(lanes_of(executor), executor.devices[0])
    step = Step(task, model, store)
    loop = AsyncLoop(step, progress)
    coordinator = WorkerCoordinator(
        executor,
        Closures(experiment, step, loop, progress, executor.worker_index),
        progress,
        TaskMonitor({}),
        stall_seconds=100,
        unrecorded_batches=lambda: 1,
    )
    trained = TrainingData.of(data)
    no_bad_records = BadRecords(trained, (), 0)
    queue = LeaseQueue(trained, EpochOrder.of(experiment), 1, QueueState(), no_bad_records)
    coordinator.train(queue, lambda: True, lambda progress: None)
    bytes_before, steps_before = bytes_to(ports), store.steps()
    coordinator.train(queue, lambda: False, lambda progress: None)
    return {
        "bytes": bytes_to(ports) - bytes_before,
        "trained_steps": store.steps() - steps_before,
    }


if __name__ == "__main__":
    main()
