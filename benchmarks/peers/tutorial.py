"""The peer: the training loop of TensorFlow's parameter server tutorial.

One `schedule` per batch, with `create_per_worker_dataset`, a Keras 3 or tf_keras model and real
`tf.distribute.Server` processes. There is no `join` between epochs: the next steps are scheduled
before the last ones are waited for, so that no worker ever waits for the chief.
"""

import argparse
import collections
import time
from typing import Any

import tensorflow as tf

from benchmarks import models
from benchmarks.peers import tensorflow_parts as parts
from benchmarks.peers.progress_lines import ProgressLines

_CHUNK_SECONDS = 0.25  # the steps of a chunk are as many as take about so long
_CHUNKS_AHEAD = 3


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], job: str, _: int) -> None:
    """Trains as the chief, serves as any other task."""
    if job == "chief":
        train(flags, cluster)
    parts.serve(flags)


def train(flags: argparse.Namespace, cluster: dict[str, list[str]]) -> None:
    """Schedules steps until this process is ended.

    They are scheduled in chunks, and the loss of a chunk's last step is fetched while the workers
    are busy with the next chunks. The queue is a queue: when that step is done, those before it
    are, but for one per worker.
    """
    parts.set_threads(flags)
    keras = parts.library(flags.lib)
    strategy = parts.parameter_server_strategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = models.build(keras, flags.model, flags.rows)
        optimizer = parts.optimizer(keras, flags)
        optimizer.build(model.trainable_variables)
    step = make_step(strategy, model, optimizer, keras)
    batches = iter(coordinator.create_per_worker_dataset(lambda: parts.dataset(flags)))
    ahead: collections.deque[tuple[int, Any]] = collections.deque()
    lines, steps, chunk, last = ProgressLines(), 0, 1, time.monotonic()
    while True:
        for _ in range(chunk):
            loss = coordinator.schedule(step, args=(batches,))
        ahead.append((chunk, loss))
        if len(ahead) > _CHUNKS_AHEAD:
            done, loss = ahead.popleft()
            value = float(loss.fetch())
            steps += done
            lines.show(steps * flags.batch, value)
            now = time.monotonic()
            chunk *= 2 if now - last < _CHUNK_SECONDS / 2 else 1
            last = now


def make_step(strategy: Any, model: Any, optimizer: Any, keras: Any) -> Any:
    """One batch on one worker; returns its loss."""
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(batch: tuple[Any, Any]) -> tf.Tensor:
        features, labels = batch
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            loss = tf.reduce_mean(loss_of(tf.cast(labels, tf.float32), logits))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(batches: Any) -> tf.Tensor:
        return strategy.run(replica, args=(next(batches),))

    return step
