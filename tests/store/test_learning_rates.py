"""Learning rates that the chief sets, beside a schedule that is known beforehand."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import save, train_with
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.data.feature import Feature
from tfps.experiment.task import Task
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

DATA = ({"records": 1},)
FIRST, SECOND, THIRD = RATES = (0.1, 0.02, 0.3)
CHANGES = (4, 7)  # the first update of each further rate
STEPS = 10


@dataclasses.dataclass(frozen=True)
class Likes(Task):
    """Whether a user likes an item; rows move on between their batches, but for the items'."""

    is_scheduled: bool = False

    def features(self):
        return (Feature("user", "int64", vocabulary=30), Feature("item", "int64", vocabulary=9))

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        inputs = {each.name: keras.Input((), name=each.name) for each in self.features()}
        rows = [
            keras.layers.Embedding(each.vocabulary_size, 4, name=f"{each.name}_table")(
                inputs[each.name]
            )
            for each in self.features()
        ]
        return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        rate = FIRST
        if self.is_scheduled:  # whose boundaries are the last updates before a change
            boundaries = [number - 1 for number in CHANGES]
            rate = keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, list(RATES))
        return keras.optimizers.SGD(rate, momentum=0.8, weight_decay=0.1)

    def table_optimizer(self, table):
        return keras.optimizers.SGD(0.5) if "item" in table.name else self.optimizer()


def make(is_scheduled=False, parts=2):
    task = Likes(is_scheduled)
    model = StatelessModel(task, 0)
    devices = ["/device:CPU:0"] * parts
    store = ParameterStore(model, Rules.of(task, model), devices, 0, may_change_rate=True)
    return store, train_with(Step(task, model, store))


def train(step, first, end):
    for number in range(first, end):
        drawn = np.random.default_rng(number)
        features = {
            "user": tf.constant(drawn.integers(0, 30, 4)),
            "item": tf.constant(drawn.integers(0, 9, 4)),
        }
        label = tf.constant(drawn.integers(0, 2, 4))
        step(features, {"label": label}, tf.constant([7, number], tf.int64))


def assert_equal(store, other):
    for ours, theirs in (
        *zip(store.read_dense(), other.read_dense(), strict=True),
        *((store.read_table(table), other.read_table(table)) for table in range(2)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_rates_that_are_set_train_what_the_same_schedule_trains(tmp_path, caplog):
    """Rows that missed updates of several rates, and a restore in between, included."""
    known, known_step = make(is_scheduled=True)
    train(known_step, 0, STEPS)
    assert known.learning_rates is None
    store, step = make()
    train(step, 0, CHANGES[0])
    store.learning_rates.set(THIRD, store.steps())
    store.learning_rates.set(SECOND, store.steps())  # in its place: no update had the other
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, store, QueueState(), DATA)
    first, second = (pytest.approx(rate) for rate in RATES[:2])
    assert directory.latest().learning_rates == ((0, first), (CHANGES[0], second))
    restored, restored_step = make(parts=1)
    restore(directory.latest(), restored, DATA)
    assert restored.learning_rates.now == second
    train(restored_step, *CHANGES)
    restored.learning_rates.set(THIRD, restored.steps())
    train(restored_step, CHANGES[1], STEPS)
    assert restored_step.experimental_get_tracing_count() == 1
    assert_equal(restored, known)
    assert "learning rate" not in caplog.text
    restore(directory.latest(), known, DATA)  # by a config that has no callbacks any more
    assert "callbacks had set the learning rate" in caplog.text
