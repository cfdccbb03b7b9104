"""In every mode, ids that a batch names several times count as Keras counts them."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.training_fixtures import Trainer, dataset
from tests.worker.test_barrier_loop import BATCH, SEED, Plain
from tests.worker.test_keyed_modes import CASES, MEMBERS, ROUNDS
from tfps.data.record_source import Batching, read_batches
from tfps.export.keras_file import trained_model
from tfps.leases.lease import EpochOrder
from tfps.model.inputs import model_inputs


@dataclasses.dataclass(frozen=True)
class Few(Plain):
    """Of few ids, which every batch has several times; its table may have keys."""

    has_keys: bool = False

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        if self.has_keys:
            table = tfps.DynamicEmbedding(4, 200, embeddings_initializer="zeros", name="few")
        else:
            table = keras.layers.Embedding(5, 4, "zeros", name="few")
        hidden = keras.layers.Concatenate()([numbers, table(token // 4)])
        hidden = keras.layers.Dense(self.units, "relu")(hidden)
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def optimizer(self):
        return keras.optimizers.Adam(0.01, clipnorm=0.1)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=MEMBERS * 203, shards=MEMBERS)


def trained_by(manifest, case, has_keys=False):
    """A trainer that has trained in a mode, and the model as it was before."""
    train, settings = CASES[case]
    task = Few(has_keys=has_keys)
    settings = {"batch_size": BATCH, "repeated_ids": "each", **settings}
    trainer = Trainer(manifest, task, **settings)
    plain = None if has_keys else trained_model(task, trainer.model, trainer.store)
    train(trainer)
    return trainer, plain


def joined_batches(trainer, case):
    """What the mode makes a step of: features and the label's values."""
    block = EpochOrder.of(trainer.experiment).block_batches
    batching = Batching(trainer.task.schema(), BATCH, block)
    read = [
        list(read_batches(source.tensors(), batching, tf.constant(SEED, tf.int64)))
        for source, _ in trainer.shards()
    ]
    if case != "sync":
        return read[0]
    return [
        [
            {name: tf.concat([part[k][name] for part in parts], 0) for name in parts[0][k]}
            for k in range(2)
        ]
        for parts in zip(*(some[:ROUNDS] for some in read), strict=True)
    ]


@pytest.mark.parametrize(
    "case",
    ["sync", *(pytest.param(n, marks=pytest.mark.slow) for n in ("async", "bounded", "local_sgd"))],
)
def test_each_occurrence_counts_as_in_keras_on_the_joined_batches(manifest, case):
    trainer, plain = trained_by(manifest, case)
    plain.compile(trainer.task.optimizer(), trainer.task.loss(), run_eagerly=True)
    for features, labels in joined_batches(trainer, case):
        inputs = model_inputs(plain, trainer.task.features(), features)
        plain.train_on_batch(inputs, labels["label"])
    ours = trained_model(trainer.task, trainer.model, trainer.store)
    for mine, theirs in zip(ours.variables, plain.variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-5, err_msg=mine.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["async", *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case != "async")],
)
def test_a_table_without_a_vocabulary_trains_as_one_with_it(manifest, case):
    stores = [trained_by(manifest, case, has_keys)[0].store for has_keys in (True, False)]
    rows = [store.read_rows(0, np.arange(5)) for store in stores]
    assert np.abs(rows[0]).max() > 1e-3
    np.testing.assert_allclose(*rows, rtol=0, atol=1e-5)
