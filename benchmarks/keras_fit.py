"""The peer: plain Keras 3 `fit`, in one process: `python -m benchmarks.keras_fit`.

The same records, model, loss and optimizer as tfps has, read from the same files by tf.data. It
trains until it is ended.
"""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import argparse
import pathlib
import sys
from typing import Any

import keras
import tensorflow as tf

from benchmarks.peers.progress_lines import ProgressLines
from tfps.experiment import field_flags, overrides
from tfps.experiment.task import Task

_STEPS_PER_EXECUTION = 20
_STEPS = 1_000_000_000  # of an epoch: more than anybody waits for
_SHUFFLED = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, help="of a task with one label")
    parser.add_argument("--batch", type=int, required=True, help="records per step")
    parser.add_argument("--intra_op_threads", type=int, default=0, help="0: as many as cores")
    parser.add_argument("--inter_op_threads", type=int, default=0, help="0: as many as cores")
    fields, rest = field_flags.split(sys.argv[1:])
    flags = parser.parse_args(rest)
    tf.config.threading.set_intra_op_parallelism_threads(flags.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_threads)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    experiment = overrides.apply(overrides.load(flags.config), fields)
    task = experiment.task
    model = task.build_model()
    model.compile(
        optimizer=task.optimizer(),
        loss=task.loss(),
        jit_compile=experiment.train.jit_compile,
        steps_per_execution=_STEPS_PER_EXECUTION,
    )
    data = batches(task, pathlib.Path(experiment.data.train), flags.batch)
    model.fit(data, steps_per_epoch=_STEPS, verbose=0, callbacks=[Progress(flags.batch)])


class Progress(keras.callbacks.Callback):
    """Says how many examples are trained."""

    def __init__(self, batch: int):
        super().__init__()
        self._batch = batch
        self._lines = ProgressLines()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called after the steps of an execution, with the number of the last one."""
        self._lines.show((batch + 1) * self._batch, logs["loss"])


def batches(task: Task, directory: pathlib.Path, batch: int) -> tf.data.Dataset:
    """Every shard, over and over: (features by name, label `[n, 1]`)."""
    schema = task.schema()
    (label,) = task.targets()
    wanted = {
        each.name: tf.io.FixedLenFeature(each.shape, tf.as_dtype(each.dtype)) for each in schema.all
    }

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        values = tf.io.parse_example(serialized, wanted)
        return values, tf.reshape(values.pop(label.name), [-1, 1])

    files = tf.data.Dataset.list_files(str(directory / "*.tfrecord"), shuffle=True)
    records = files.repeat().interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=8 << 20),
        cycle_length=4,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    made = records.shuffle(_SHUFFLED).batch(batch, drop_remainder=True)
    return made.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()
