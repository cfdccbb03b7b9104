"""Measures what the graph of a training closure takes: `python -m benchmarks.graph_memory`.

For each number of ps and of workers, a cluster in which the first ps is a process of its own and
all others share one, so that many fit a machine. The first ps's memory before and after every
worker has trained is what it holds of the graph; the other process's, by worker, what a worker
holds. The chief's CPU time and what it sent until the first worker began are counted, too. One
model, the smoke config's, with one group of tables. See docs/scale.md.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import tempfile
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import psutil
import tensorflow as tf

from configs.smoke import get_config
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.leases.progress import LeaseProgress
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.closures import Closures
from tfps.worker.step import Step
from trainer.generate import generate

Spec = dict[str, list[str]]


def main() -> int:
    """Measures each size in processes of its own; prints JSON lines; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ps", default="2,10")
    parser.add_argument("--workers", default="2,8")
    flags = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        data = generate(get_config(), directory, 320, 1, 0, 0, "smoke", False)
        for ps in map(int, flags.ps.split(",")):
            for workers in map(int, flags.workers.split(",")):
                chief = context.Process(target=measure, args=(data, ps, workers))
                chief.start()
                chief.join()
                if chief.exitcode:
                    return 1
    return 0


def measure(data: Manifest, ps: int, workers: int) -> None:
    """The chief of one cluster."""
    context = multiprocessing.get_context("spawn")
    spec = {"worker": addresses(workers), "ps": addresses(ps)}
    tasks = [(job, index) for job, hosts in spec.items() for index in range(len(hosts))]
    others = [task for task in tasks if task != ("ps", 0)]
    servers = [start(context, spec, [("ps", 0)]), start(context, spec, others)]
    try:
        print(json.dumps(figures(data, spec, [server.pid for server in servers])), flush=True)
    finally:
        for server in servers:
            server.kill()
            server.join()
    os._exit(0)


def start(
    context: multiprocessing.context.SpawnContext, spec: Spec, tasks: list
) -> multiprocessing.Process:
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(spec, tasks, theirs), daemon=True)
    server.start()
    ours.recv()
    return server


def addresses(count: int) -> list[str]:
    """Free ports of this machine."""
    held = [socket.create_server(("localhost", 0)) for _ in range(count)]
    found = [f"localhost:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return found


def serve(
    spec: Spec, tasks: list[tuple[str, int]], ready: multiprocessing.connection.Connection
) -> None:
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=4
    )
    servers = [
        tf.distribute.Server(tf.train.ClusterSpec(spec), job, index, "grpc", config)
        for job, index in tasks
    ]
    ready.send(len(servers))
    time.sleep(1e6)


def figures(data: Manifest, spec: Spec, servers: list[int]) -> dict[str, float]:
    """What one cluster takes."""
    ps, workers = len(spec["ps"]), len(spec["worker"])
    experiment = get_config()
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(spec), job_name="chief", protocol="grpc"
    )
    model = StatelessModel(experiment.task, 0)
    devices = [f"/job:ps/replica:0/task:{part}/device:CPU:0" for part in range(ps)]
    rules = Rules.of(experiment.task, model)
    store = ParameterStore(model, rules, devices, 0)
    progress = LeaseProgress(workers, devices[0])
    step = Step(experiment.task, model, store)
    loop = AsyncLoop(step, progress)
    closures = Closures(experiment, step, loop, progress, lambda: tf.constant(0, tf.int64))
    before, cpu = [held(pid) for pid in servers], time.process_time()
    function = closures.train.get_concrete_function()
    traced = time.process_time() - cpu
    graph = function.graph.as_graph_def()
    source = RecordSource(data.path_of(data.shards[0])).pack()

    def train(worker: int) -> None:
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            closures.train(source, tf.constant([0, 320, 1, worker], tf.int64)).numpy()

    cpu = time.process_time()
    train(0)
    sent = time.process_time() - cpu
    first = [held(pid) for pid in servers]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(train, range(1, workers)))
    after = [held(pid) for pid in servers]
    return {
        "ps": ps,
        "workers": workers,
        "nodes": len(graph.node) + sum(len(each.node_def) for each in graph.library.function),
        "graph_bytes": graph.ByteSize(),
        "chief_trace_cpu_seconds": round(traced, 2),
        "chief_first_call_cpu_seconds": round(sent, 2),
        "ps_first_worker_bytes": first[0] - before[0],
        "ps_bytes_per_further_worker": round((after[0] - first[0]) / max(1, workers - 1)),
        "others_first_worker_bytes": first[1] - before[1],
        "others_bytes_per_further_worker": round((after[1] - first[1]) / max(1, workers - 1)),
    }


def held(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return psutil.Process(pid).memory_info().rss


if __name__ == "__main__":
    sys.exit(main())
