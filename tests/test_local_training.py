import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.training_fixtures import Trainer, dataset
from tfps.mode import Mode


@dataclasses.dataclass(frozen=True)
class With(Smoke):
    rule: keras.optimizers.Optimizer | None = None

    def optimizer(self):
        return self.rule


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=203, shards=1)


def train(trainer):
    """Trains the shard in one lease; returns what is recorded of it."""
    [(source, count)] = trainer.shards()
    trainer.closures.train(source.tensors(), tf.constant([0, count, 3, 0], tf.int64))
    return trainer.store.progress.read()[0]


def held(trainer):
    """Everything a checkpoint holds: parameters, slots, state."""
    return {(piece.name, piece.first): piece.variable.numpy() for piece in trainer.store.pieces()}


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=0.5),
        keras.optimizers.Adagrad(0.05),
        keras.optimizers.AdamW(0.01, weight_decay=0.1),
    ],
    ids=["momentum", "adagrad", "adamw"],
)
def test_one_worker_alone_trains_as_with_a_push_for_every_step(manifest, optimizer):
    """Thirteen batches, the last one short, four at a time and one by itself."""
    task = With(rule=optimizer)
    plain = Trainer(manifest, task, batch_size=16)
    local = Trainer(manifest, task, batch_size=16, mode=Mode("local_sgd", sync_every=4))
    theirs, ours = train(plain), train(local)
    assert ours.steps == theirs.steps == local.steps() == plain.steps() == 13
    assert ours.loss_sum == pytest.approx(theirs.loss_sum, rel=1e-5)
    expected = held(plain)
    for key, values in held(local).items():
        np.testing.assert_allclose(values, expected[key], atol=1e-5, err_msg=key[0])
