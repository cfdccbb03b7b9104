"""Rounds whose mean is clipped, or whose loss is scaled, beside Keras on the joined batches."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import InHalfPrecision, Trainer, dataset
from tests.worker.test_barrier_loop import BATCH, SEED, Plain, barrier_of, steps_of
from tfps.data.record_source import Batching, read_batches
from tfps.experiment.mode import Sync
from tfps.export.keras_file import trained_model
from tfps.leases.lease import EpochOrder
from tfps.model.inputs import model_inputs

MEMBERS, ROUNDS = 2, 12


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=MEMBERS * 200, shards=MEMBERS)


def joined_batches(trainer):
    """The batches of a round of all members, put together: features and the label's values."""
    block = EpochOrder.of(trainer.experiment).block_batches
    batching = Batching(trainer.task.schema(), BATCH, block)
    read = [
        list(read_batches(source.tensors(), batching, tf.constant(SEED, tf.int64)))[:ROUNDS]
        for source, _ in trainer.shards()
    ]
    for parts in zip(*read, strict=True):
        features, labels = (
            {name: tf.concat([part[k][name] for part in parts], 0) for name in parts[0][k]}
            for k in range(2)
        )
        yield features, labels["label"]


def train_keras(model, inputs, label):
    """A step of Keras's optimizer with dense gradients: of sparse ones it adds up no row's parts
    before it takes a norm.
    """
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=inputs, y=label, y_pred=model(inputs, training=True))
        loss = model.optimizer.scale_loss(loss)
    weights = [variable.value for variable in model.trainable_variables]
    gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, weights)]
    model.optimizer.apply(gradients, model.trainable_variables)


def train_beside_keras(manifest, task, first_scale=None):
    """Trains rounds, and Keras itself on the joined batches: parameters by path, of both."""
    trainer = Trainer(manifest, task, batch_size=BATCH, members=MEMBERS, mode=Sync())
    plain = trained_model(task, trainer.model, trainer.store)
    plain.compile(task.optimizer(), task.loss(), run_eagerly=True)
    if first_scale:
        trainer.store.loss_scale._values.assign([first_scale, 0.0, 0.0])
        plain.optimizer.build(plain.trainable_variables)
        plain.optimizer.dynamic_scale.assign(first_scale)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect(range(MEMBERS))
        closures = [begin(member, count=ROUNDS * BATCH) for member in range(MEMBERS)]
        assert [steps_of(closure) for closure in closures] == [(1, ROUNDS)] * MEMBERS
    for features, label in joined_batches(trainer):
        train_keras(plain, model_inputs(plain, task.features(), features), label)
    ours = trained_model(task, trainer.model, trainer.store)
    return trainer, plain, *({v.path: v.numpy() for v in m.variables} for m in (ours, plain))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"global_clipnorm": 0.05},
        {"clipnorm": 0.02},
        pytest.param({"clipvalue": 0.01}, marks=pytest.mark.slow),
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_mean_of_a_round_is_clipped_as_one_gradient_of_all_records(manifest, options):
    _, _, ours, theirs = train_beside_keras(
        manifest, Plain(rule=keras.optimizers.SGD(0.5, momentum=0.5, **options))
    )
    for path, values in theirs.items():
        np.testing.assert_allclose(ours[path], values, atol=1e-5, err_msg=path)
    free = Plain(rule=keras.optimizers.SGD(0.5, momentum=0.5))
    *_, unclipped, _ = train_beside_keras(manifest, free)
    assert max(np.abs(unclipped[path] - ours[path]).max() for path in ours) > 0.01


@dataclasses.dataclass(frozen=True)
class Half(InHalfPrecision, Plain):
    """In float16; its loss is scaled by Keras in the plain model, by tfps in the other."""

    def optimizer(self):
        return keras.optimizers.SGD(0.05)


@pytest.mark.slow
def test_a_round_that_overflows_halves_the_scale_once_and_changes_no_parameter(manifest):
    """From a scale at which the first rounds overflow, as Keras's does on their whole batches."""
    trainer, plain, ours, theirs = train_beside_keras(manifest, Half(), first_scale=2.0**24)
    scale, skipped = trainer.store.loss_scale.read()
    assert 0 < skipped < ROUNDS
    assert scale == float(plain.optimizer.dynamic_scale) == 2.0 ** (24 - skipped)
    assert trainer.steps() == int(plain.optimizer.iterations) == ROUNDS - skipped
    for path, values in theirs.items():
        np.testing.assert_allclose(ours[path], values, atol=2e-3, err_msg=path)
