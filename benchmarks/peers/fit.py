"""The peer: `Model.fit` of tf_keras on parameter servers, with many steps per call of a worker."""

import argparse
import threading
import time
from typing import Any

import tf_keras

from benchmarks import models
from benchmarks.peers import progress_lines
from benchmarks.peers import tensorflow_parts as parts

STEPS_PER_EXECUTION = 20
_STEPS = 1_000_000_000  # of an epoch: more than anybody waits for


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], job: str, _: int) -> None:
    """Trains as the chief, serves as any other task."""
    if job == "chief":
        parts.set_threads(flags)
        fit(flags, parts.parameter_server_strategy(cluster))
    parts.serve(flags)


def fit(flags: argparse.Namespace, strategy: Any) -> None:
    """Trains until this process is ended."""
    with strategy.scope():
        model = models.build(tf_keras, flags.model, flags.rows)
        model.compile(
            optimizer=parts.optimizer(tf_keras, flags),
            loss=tf_keras.losses.BinaryCrossentropy(from_logits=True),
            steps_per_execution=STEPS_PER_EXECUTION,
        )
        model.optimizer.build(model.trainable_variables)
    data = tf_keras.utils.experimental.DatasetCreator(lambda _: parts.dataset(flags))
    threading.Thread(target=watch, args=(flags, model), daemon=True).start()
    model.fit(data, steps_per_epoch=_STEPS, verbose=0)


def watch(flags: argparse.Namespace, model: Any) -> None:
    """Says what is trained: the optimizer counts its steps on a ps, whoever makes them."""
    lines = progress_lines.ProgressLines()
    while True:
        steps = int(model.optimizer.iterations.numpy())
        if steps:
            lines.show(steps * flags.batch, model.metrics[0].result())
        time.sleep(progress_lines.SECONDS)
