"""Tables whose gradients do not depend on each other, as towers of several labels have them."""

import dataclasses
import threading

import keras
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.training_fixtures import Trainer, dataset

WORKERS, CALLS, STEPS = 2, 40, 10
SECONDS = 60  # for what takes a few, unless workers wait for each other for ever


@dataclasses.dataclass(frozen=True)
class Towers(Smoke):
    """Two tables in groups of their own; each has its own loss."""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers")
        token = keras.Input((), name="token", dtype="int64")
        towers = [keras.layers.Embedding(self.vocabulary, dim)(token) for dim in (1, 4)]
        return keras.Model([numbers, token], towers)

    def compute_loss(self, features, labels, outputs):
        return sum(tf.reduce_sum(rows) for rows in outputs)

    def optimizer(self):
        return keras.optimizers.SGD(2.0**-10)

    def predictions(self, outputs):
        return outputs[0][:, 0]


@pytest.mark.slow
def test_workers_that_push_to_independent_tables_do_not_wait_for_each_other(tmp_path):
    """A push takes a mutex for each group of tables, whose gradients come in any order."""
    trainer = Trainer(dataset(tmp_path, 100, 1), Towers(), parts=1)
    features = {"numbers": tf.zeros([20, 4]), "token": tf.range(20, dtype=tf.int64)}
    labels = {"label": tf.zeros([20], tf.int64)}

    @tf.function(autograph=False)
    def steps():
        for _ in range(STEPS):
            batch = trainer.step.pull(features, labels)
            trainer.step.train(batch, tf.zeros([2], tf.int64))

    before = [trainer.store.read_table(table) for table in range(2)]
    graph = steps.get_concrete_function()

    def work():
        for _ in range(CALLS):
            graph()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert not any(worker.is_alive() for worker in workers)
    moved = WORKERS * CALLS * STEPS * 2.0**-10
    for table in range(2):
        assert before[table] - trainer.store.read_table(table) == pytest.approx(moved, abs=1e-4)
