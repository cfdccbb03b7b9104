"""Rows that no batch has touched for a while, in a whole store and its checkpoints."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import save, train_with
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

DATA = ({"records": 1},)


class Likes(Task):
    """Whether a user likes an item."""

    def features(self):
        return (Feature("user", "int64", vocabulary=50), Feature("item", "int64", vocabulary=9))

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        inputs = {each.name: keras.Input((), name=each.name) for each in self.features()}
        rows = [
            keras.layers.Embedding(each.vocabulary_size, 4)(inputs[each.name])
            for each in self.features()
        ]
        return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adam(0.05)


def make(row_updates, parts=2):
    task = Likes()
    model = StatelessModel(task, 0)
    rules = Rules.of(task, model, row_updates)
    store = ParameterStore(model, rules, ["/device:CPU:0"] * parts, 0)
    return store, train_with(Step(task, model, store))


@pytest.fixture(scope="module")
def batches():
    """Of a few users each."""
    drawn = np.random.default_rng(4)
    features = [
        {
            "user": tf.constant(drawn.integers(0, 50, 4)),
            "item": tf.constant(drawn.integers(0, 9, 4)),
        }
        for _ in range(9)
    ]
    return [(each, {"label": tf.constant(drawn.integers(0, 2, 4))}) for each in features]


def train(step, batches, first, end):
    for number in range(first, end):
        step(*batches[number], tf.constant([7, number], tf.int64))


@pytest.mark.slow
def test_rows_go_on_after_a_restore_onto_another_number_of_ps(batches, tmp_path):
    first, first_step = make("keras")
    train(first_step, batches, 0, 5)
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, first, QueueState(), DATA)
    second, second_step = make("keras", parts=3)
    restore(directory.latest(), second, DATA)
    for end in (5, 9):
        for step in (first_step, second_step):
            train(step, batches, 5, end)
        for table in range(2):
            np.testing.assert_allclose(
                first.read_table(table), second.read_table(table), rtol=0, atol=1e-5
            )


def test_lazily_rows_wait_and_their_checkpoint_says_so(batches, tmp_path):
    stores, before, after = {}, {}, {}
    for row_updates in ("keras", "lazy"):
        stores[row_updates], step = make(row_updates)
        train(step, batches, 0, 1)
        before[row_updates] = stores[row_updates].read_table(0)
        train(step, batches, 1, 2)
        after[row_updates] = stores[row_updates].read_table(0)
    np.testing.assert_array_equal(before["keras"], before["lazy"])
    users = [features["user"].numpy() for features, _ in batches[:2]]
    waiting = np.setdiff1d(*users)
    assert len(waiting)
    assert np.abs(after["keras"] - before["keras"])[waiting].min() > 1e-4
    np.testing.assert_array_equal(after["lazy"][waiting], before["lazy"][waiting])
    assert not any("last_update" in slice_.name for slice_ in stores["lazy"].slices())
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, stores["lazy"], QueueState(), DATA)
    with pytest.raises(UserError, match="row_updates was absent, is keras"):
        restore(directory.latest(), stores["keras"], DATA)
