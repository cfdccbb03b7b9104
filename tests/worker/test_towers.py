"""A model's towers on devices that it chooses itself, as docs/modes.md shows it."""

import dataclasses
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.experiment.experiment import Experiment
from tfps.experiment.task import Task
from tfps.export.loaded_model import ExportedModel
from trainer.datasets.generation import generate

DEVICES = 3
PLACED = "from here on on devices of the model's choice"


class Tower(keras.layers.Layer):
    """A dense layer that is computed on a device."""

    def __init__(self, units: int, device: str, **options):
        super().__init__(**options)
        self.dense = keras.layers.Dense(units, activation="relu")
        self.device = device

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        with tf.device(self.device):
            return self.dense(inputs)


@dataclasses.dataclass(frozen=True)
class Towers(Task):
    """Whether a user likes an item: the dot product of what two towers make of them."""

    devices: tuple[str, str] = ("", "")

    def features(self):
        return (Feature("user", "int64", vocabulary=50), Feature("item", "int64", vocabulary=70))

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        inputs, towers = {}, []
        for feature, device in zip(self.features(), self.devices, strict=True):
            name = feature.name
            inputs[name] = keras.Input((), name=name, dtype="int64")
            rows = keras.layers.Embedding(feature.vocabulary_size, 8, name=f"{name}_table")
            towers.append(Tower(16, device, name=f"{name}_tower")(rows(inputs[name])))
        return keras.Model(inputs, keras.layers.Dot(1)(towers))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adagrad(0.1)

    def predictions(self, outputs):
        return keras.ops.sigmoid(outputs[:, 0])


@pytest.mark.slow
def test_each_tower_is_computed_where_the_model_says(tmp_path):
    """In a process of its own: TensorFlow's devices are fixed once it has started."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.worker.test_towers", str(tmp_path)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    _, _, log = run.stderr.partition(PLACED)
    for name, device in (("user", "1"), ("item", "2")):
        of_tower = rf"{name}_tower\S*/MatMul\S*: \(MatMul\): \S*device:CPU:(\d)"
        assert set(re.findall(of_tower, log)) == {device}


def _compare(directory: str) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    configuration = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    tf.config.set_logical_device_configuration(cpu, configuration)
    tf.debugging.set_log_device_placement(True)
    data = generate(Experiment("towers", Towers()), f"{directory}/data", records=200, shards=2)
    free = _trained(data, Towers())
    # Where there is no such device, the model is computed on those there are.
    elsewhere = _trained(data, Towers(("/device:GPU:0", "/device:GPU:1")))
    elsewhere.export(f"{directory}/export")
    ids = {name: tf.constant([1, 2], tf.int64) for name in ("user", "item")}
    assert ExportedModel.load(f"{directory}/export").predict(ids)["predictions"].shape == (2,)
    print(PLACED, file=sys.stderr)
    placed = _trained(data, Towers(("/device:CPU:1", "/device:CPU:2")))
    for one, other in zip(placed.store.read_dense(), free.store.read_dense(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for table in range(2):
        one, other = placed.store.read_table(table), free.store.read_table(table)
        np.testing.assert_allclose(one, other, atol=1e-6)


def _trained(data: Manifest, task: Towers) -> Trainer:
    trainer = Trainer(data, task)
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    return trainer


if __name__ == "__main__":
    _compare(sys.argv[1])
