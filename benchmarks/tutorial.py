"""TensorFlow's own parameter-server training, as its tutorial shows it: the peer to compare with.

    python benchmarks/tutorial.py --data=DIR --workers=2 --ps=1

`ParameterServerStrategy`, `ClusterCoordinator`, a per-worker dataset, one `schedule` per batch, one
`join`, with tf_keras (or Keras 3 with `--lib=keras`), on the model and the TFRecords of
configs/criteo.py. This file needs nothing of tfps, only tensorflow, tf_keras and psutil. It starts
one real `tf.distribute.Server` process per worker and ps, measures a window of steady state and
prints one line `RESULT {json}`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from meter import Meter, used

INTEGERS = 13
CATEGORICALS = 26
DIM = 16
LEARNING_RATE = 0.05
SHUFFLE_BUFFER = 8192
WARM_SECONDS = 5.0


def main() -> None:
    """Runs the chief, or one server when TF_CONFIG names another task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, help="directory of TFRecord shards")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each table")
    parser.add_argument("--batch", type=int, default=512, help="records per step of one worker")
    parser.add_argument("--seconds", type=float, default=20.0, help="least length of the window")
    parser.add_argument("--lib", choices=("tf_keras", "keras"), default="tf_keras")
    parser.add_argument("--intra_op_threads", type=int, default=1)
    parser.add_argument("--inter_op_threads", type=int, default=4)
    flags = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        serve(flags)
    else:
        with servers(flags) as (config, processes):
            os.environ["TF_CONFIG"] = config
            train(flags, processes)
            sys.stdout.flush()
            os._exit(0)  # the coordinator would wait for the servers, which end with this process


def serve(flags: argparse.Namespace) -> None:
    """Serves until the chief closes this process's stdin, by ending too."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=flags.intra_op_threads,
        inter_op_parallelism_threads=flags.inter_op_threads,
    )
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        config=config,
    ).join()


@contextlib.contextmanager
def servers(flags: argparse.Namespace) -> Iterator[tuple[str, dict[str, int]]]:
    """Starts every worker and ps; yields the chief's TF_CONFIG and the process ids by task."""
    jobs = {"chief": 1, "worker": flags.workers, "ps": flags.ps}
    ports = free_ports(sum(jobs.values()))
    spec = {job: [f"127.0.0.1:{ports.pop()}" for _ in range(count)] for job, count in jobs.items()}

    def config(job: str, index: int) -> str:
        return json.dumps({"cluster": spec, "task": {"type": job, "index": index}})

    started: dict[str, subprocess.Popen] = {}
    try:
        for job in ("ps", "worker"):
            for index in range(jobs[job]):
                started[f"{job}-{index}"] = subprocess.Popen(
                    [sys.executable, *sys.argv],
                    env={**os.environ, "TF_CONFIG": config(job, index)},
                    stdin=subprocess.PIPE,
                )
        pids = {name: process.pid for name, process in started.items()}
        yield config("chief", 0), {"chief-0": os.getpid(), **pids}
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def train(flags: argparse.Namespace, processes: dict[str, int]) -> None:
    """The tutorial's loop, with a window around a part of it."""
    tf.config.threading.set_intra_op_parallelism_threads(flags.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_threads)
    keras = library(flags.lib)
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = build_model(keras, flags.rows)
        optimizer = keras.optimizers.Adagrad(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
    step = make_step(strategy, model, optimizer, keras)
    batches = iter(coordinator.create_per_worker_dataset(lambda: dataset(flags.data, flags.batch)))

    def run(steps: int) -> float:
        """Trains so many batches; returns the mean loss of the last ones."""
        losses: list[Any] = []
        for _ in range(steps):
            losses.append(coordinator.schedule(step, args=(batches,)))
            del losses[:-64]
        coordinator.join()
        return sum(float(loss.fetch()) for loss in losses) / len(losses)

    result = measure(run, flags.batch, flags.seconds, Meter(processes))
    print("RESULT " + json.dumps({**result, "tensorflow": tf.__version__, "lib": flags.lib}))


def measure(
    run: Callable[[int], float], batch: int, seconds: float, meter: Meter
) -> dict[str, Any]:
    """Warms up, then measures a window that is at least so long."""
    steps, spent, rate = 16, 0.0, 0.0
    while spent < WARM_SECONDS:
        began = time.monotonic()
        run(steps)
        took = time.monotonic() - began
        rate = steps / took
        if steps > 16:  # the first ones trace and connect
            spent += took
        steps = max(steps + 1, min(steps * 4, int(rate * 2.0)))
    steps = int(rate * seconds * 1.1) + 1
    while True:
        start = meter.read()
        loss = run(steps)
        end = meter.read()
        took = end.time - start.time
        if took >= seconds:
            return {**used(start, end, steps * batch), "loss": round(loss, 4)}
        steps = int(steps * seconds / took * 1.1) + 1


def library(name: str) -> Any:
    """The Keras to use."""
    if name == "keras":
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import keras

        return keras
    import tf_keras

    return tf_keras


def build_model(keras: Any, rows: int) -> Any:
    """The model of configs/criteo.py."""
    integers = keras.Input((INTEGERS,), name="integers", dtype="float32")
    categoricals = keras.Input((CATEGORICALS,), name="categoricals", dtype="int64")
    embeddings = [
        keras.layers.Embedding(rows, DIM)(categoricals[:, index]) for index in range(CATEGORICALS)
    ]
    hidden = keras.layers.Concatenate()([*embeddings, integers])
    for units in (128, 64):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    logits = keras.layers.Dense(1)(hidden)
    return keras.Model({"integers": integers, "categoricals": categoricals}, logits)


def make_step(strategy: Any, model: Any, optimizer: Any, keras: Any) -> Any:
    """One batch on one worker; returns its loss."""
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(batch: tuple[Any, Any]) -> tf.Tensor:
        features, labels = batch
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            loss = tf.reduce_mean(loss_of(tf.cast(labels, tf.float32)[:, tf.newaxis], logits))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(batches: Any) -> tf.Tensor:
        return strategy.run(replica, args=(next(batches),))

    return step


def dataset(directory: str, batch: int) -> tf.data.Dataset:
    """Every shard, over and over, in an order of the worker's own."""
    schema = {
        "integers": tf.io.FixedLenFeature((INTEGERS,), tf.float32),
        "categoricals": tf.io.FixedLenFeature((CATEGORICALS,), tf.int64),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(serialized, schema)
        return features, features.pop("label")

    files = tf.data.Dataset.list_files(str(pathlib.Path(directory, "*.tfrecord")), shuffle=True)
    records = files.repeat().interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=8 << 20),
        cycle_length=4,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    batches = records.shuffle(SHUFFLE_BUFFER).batch(batch, drop_remainder=True)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()
