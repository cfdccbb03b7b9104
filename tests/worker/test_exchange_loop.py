"""Several batches in an exchange are what they are one by one, pulled at the same moment."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import counting_task
from tests.training_fixtures import Trainer, WithOptimizer
from tfps.experiment.mode import Async
from tfps.store.batch_run import BatchRun
from tfps.worker.step import Batch

BATCHES = 3


def batches():
    drawn = np.random.default_rng(5)
    return [
        (
            {
                "numbers": tf.constant(drawn.normal(size=(32, 4)), tf.float32),
                "token": tf.constant(drawn.integers(0, 20, 32)),
            },
            {"label": tf.constant(drawn.integers(0, 2, 32))},
        )
        for _ in range(BATCHES)
    ]


def seed(number):
    return tf.constant([0, number], tf.int64)


def one_by_one(trainer):
    """All are pulled for, then each is pushed."""
    step = trainer.step

    @tf.function(autograph=False)
    def train():
        pulled = [step.pull(*each) for each in batches()]
        return [step.train(batch, seed(number)) for number, batch in enumerate(pulled)]

    return train()


def together(trainer):
    step = trainer.step

    @tf.function(autograph=False)
    def train():
        run = BatchRun(step.store, [step.lookups(*each) for each in batches()])
        found = [
            step.gradients(Batch(*each, pulled), seed(number))
            for number, (each, pulled) in enumerate(zip(batches(), run.pulled, strict=True))
        ]
        run.push([gradients for _, gradients in found])
        return [loss for loss, _ in found]

    return train()


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (keras.optimizers.Adagrad(0.1), {"parts": 1, "repeated_ids": "each"}),
        pytest.param(keras.optimizers.Adagrad(0.1), {"parts": 1}, marks=pytest.mark.slow),
        pytest.param(
            keras.optimizers.Adam(0.01, clipnorm=0.1), {"parts": 2}, marks=pytest.mark.slow
        ),
        pytest.param(
            keras.optimizers.RMSprop(0.01, weight_decay=0.01),
            {"parts": 3, "wire_dtype": "bfloat16"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_batches_pushed_together_change_what_they_change_one_by_one(optimizer, settings):
    results = []
    for train in (one_by_one, together):
        trainer = Trainer(None, WithOptimizer(rule=optimizer), **settings)
        losses = train(trainer)
        slices = [slice_.variable.numpy() for slice_ in trainer.store.slices()]
        results.append((losses, slices, trainer.store.staleness.report()))
        assert trainer.store.steps() == BATCHES
    (losses, expected, counted), (found_losses, found, found_counted) = results
    np.testing.assert_array_equal(losses, found_losses)
    for before, after in zip(expected, found, strict=True):
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)
    assert found_counted == counted
    assert counted.histogram == [1, 1, 1]


def trained(trainer, records):
    (source, _), *_ = trainer.shards()
    lease = tf.constant([0, records, 3, 0], tf.int64)
    return trainer.closures.train(source.pack(), lease).numpy().tolist()


@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_lease_ends_with_the_batches_that_are_too_few_for_an_exchange(tmp_path, parts):
    """Every record is trained and counted once: two exchanges in a turn, then one by one."""
    task = counting_task.CountingTask(records=130)
    data = counting_task.write(tmp_path, task, [130])
    mode = Async(batches_per_exchange=4)
    trainer = Trainer(data, task, batch_size=10, unroll=5, mode=mode, parts=parts)
    attempts, steps, bad, _, bad_step, *_ = trained(trainer, 130)
    assert (attempts, steps, bad, bad_step) == (1, 13, 0, -1)
    assert trainer.steps() == 13
    assert set(trainer.store.read_table(0)[:, 0]) == {1.0}
