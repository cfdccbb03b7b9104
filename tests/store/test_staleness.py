import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer, WithOptimizer, dataset
from tfps.data.record_source import Batching, read_batches
from tfps.experiment.mode import Async
from tfps.job_dir.report import StalenessCounts


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=100, shards=1)


def changes(manifest, optimizer, power):
    """What three batches change that were pulled together, `[3, values]`; staleness."""
    # Lazily: momentum continues at the rate of the update that it was made of.
    task, mode = WithOptimizer(rule=optimizer), Async(staleness_power=power)
    trainer = Trainer(manifest, task, mode=mode, row_updates="lazy")
    [(source, _)] = trainer.shards()
    read = iter(read_batches(source.tensors(), Batching(trainer.task.schema(), 20)))
    values = [parameters(trainer)]
    for batch in [trainer.step.pull(*next(read)) for _ in range(3)]:
        trainer.step.train(batch, tf.zeros([2], tf.int64))
        values.append(parameters(trainer))
    return np.diff(values, axis=0), trainer.store.staleness.report()


def parameters(trainer):
    values = [*trainer.store.read_dense(), trainer.store.read_table(0)]
    return np.concatenate([value.reshape(-1) for value in values])


SGD, ADAM = keras.optimizers.SGD(0.5), keras.optimizers.Adam(0.01)


@pytest.mark.parametrize(
    ("optimizer", "power"),
    [
        (SGD, 1.0),
        pytest.param(ADAM, 0.5, marks=pytest.mark.slow),
        pytest.param(SGD, 0.5, marks=pytest.mark.slow),
        pytest.param(ADAM, 1.0, marks=pytest.mark.slow),
    ],
    ids=["sgd-1.0", "adam-0.5", "sgd-0.5", "adam-1.0"],
)
def test_the_learning_rate_shrinks_with_staleness(manifest, optimizer, power):
    plain, staleness = changes(manifest, optimizer, 0.0)
    scaled, same = changes(manifest, optimizer, power)
    assert staleness == same == StalenessCounts(mean=1.0, histogram=[1, 1, 1])
    for k in range(3):
        assert np.abs(plain[k]).max() > 1e-3
        np.testing.assert_allclose(scaled[k], plain[k] * (1 + k) ** -power, atol=1e-6)
