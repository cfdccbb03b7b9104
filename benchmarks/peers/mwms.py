"""The peer: MultiWorkerMirroredStrategy with tf_keras, gradients reduced in a ring over gRPC.

Training is synchronous, so the first worker counts for all.
"""

import argparse
from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks import models
from benchmarks.peers import tensorflow_parts as parts
from benchmarks.peers.progress_lines import ProgressLines


def run(flags: argparse.Namespace, _: dict[str, list[str]], __: str, index: int) -> None:
    """Trains as one of the workers."""
    train(flags, counts=index == 0)


def train(flags: argparse.Namespace, counts: bool) -> None:
    """Trains until this process is ended."""
    parts.set_threads(flags)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
    )
    with strategy.scope():
        model = models.build(tf_keras, flags.model, flags.rows)
        optimizer = parts.optimizer(tf_keras, flags)
        optimizer.build(model.trainable_variables)
    batches = iter(strategy.distribute_datasets_from_function(lambda _: parts.dataset(flags)))
    step = make_step(strategy, model, optimizer, flags.batch * flags.workers)
    lines, steps = ProgressLines(), 0
    while True:
        loss = step(batches)
        steps += 1
        if counts:
            # The loss is this worker's part of the mean over the batches of all.
            lines.show(steps * flags.batch * flags.workers, loss * flags.workers)


def make_step(strategy: Any, model: Any, optimizer: Any, batch: int) -> Any:
    """One batch on every worker; returns the loss of this one's part."""
    loss_of = tf_keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            losses = loss_of(tf.cast(labels, tf.float32), logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(batches: Any) -> tf.Tensor:
        return strategy.run(replica, args=next(batches))

    return step
