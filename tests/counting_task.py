"""A task that counts how often each record was trained, in steps that take a set time."""

import dataclasses
import itertools

import keras
import numpy as np
import tensorflow as tf

from tfps.data.dataset_writer import DatasetWriter
from tfps.data.feature import Feature
from tfps.experiment.experiment import Data, Experiment, Train
from tfps.experiment.task import Task


@dataclasses.dataclass(frozen=True)
class CountingTask(Task):
    """A table with a row per record, to which training the record once adds exactly 1.

    Its gradient is -1 and the optimizer SGD with learning rate 1: float32 counts exactly.

    Attributes:
        records: Rows of the table.
        payload: Further numbers of a record, to make it large.
        step_seconds: How long a step takes between pull and push. It waits without using the CPU,
            so that workers are equally fast on any machine.
    """

    records: int = 100
    payload: int = 1
    step_seconds: float = 0.0

    def features(self):
        return (
            Feature("record", "int64", vocabulary=self.records),
            Feature("payload", "float32", (self.payload,)),
        )

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        record = keras.Input((), name="record", dtype="int64")
        payload = keras.Input((self.payload,), name="payload")
        rows = keras.layers.Embedding(self.records, 1, "zeros", name="counted")
        nothing = 0.0 * keras.ops.sum(payload, axis=-1, keepdims=True)
        return keras.Model([record, payload], rows(record) + nothing)

    def compute_loss(self, features, labels, outputs):
        total = tf.reduce_sum(outputs)
        if not self.step_seconds:
            return -total
        # Begins when the pull has arrived, and the gradient, which it does not change, depends on
        # its end.
        return -total * (1.0 + late_zero(total, self.step_seconds))

    def optimizer(self):
        return keras.optimizers.SGD(1.0)

    def predictions(self, outputs):
        return outputs[:, 0]


def late_zero(pulled, seconds):
    """A zero that comes a while after a value, without using the CPU meanwhile.

    Args:
        pulled: Scalar.
        seconds: How long it takes.
    """
    # Waits in vain for a second call to run together with.
    microseconds = round(seconds * 1e6)
    wait = tf.nondifferentiable_batch_function(1, 2, microseconds)
    pulled = tf.stop_gradient(pulled)
    # TensorFlow keeps what waits by the operation's name, with the time of its first use.
    with tf.name_scope(f"wait_{microseconds}"):
        waited = tf.stop_gradient(tf.reshape(wait(tf.identity)(pulled[tf.newaxis]), []))
    return waited - pulled


def get_config():
    from tests import unrolling  # here: it loads the chief

    unrolling.as_in_long_runs()
    return Experiment("counting", CountingTask(), Data(shuffle_buffer=1000), Train(batch_size=100))


def write(directory, task, sizes, corrupt=None, first=0):
    """Writes records `first`, the next, … in shards of the given sizes; returns the manifest.

    Args:
        directory: Of the dataset.
        task: The task.
        sizes: Records of each shard.
        corrupt: By record, what changes its features.
        first: The first record.
    """
    numbers, corrupt = iter(range(first, first + sum(sizes))), corrupt or {}
    payload = np.zeros(task.payload, np.float32)
    with DatasetWriter.open(str(directory), "counted", len(sizes), task.schema()) as writer:
        for shard, size in enumerate(sizes):
            for number in itertools.islice(numbers, size):
                example = tf.train.Example()
                feature = example.features.feature
                feature["record"].int64_list.value.append(number)
                feature["payload"].float_list.value.extend(payload)
                feature["label"].int64_list.value.append(0)
                if number in corrupt:
                    corrupt[number](feature)
                writer.write(shard, example.SerializeToString())
        return writer.finish()
