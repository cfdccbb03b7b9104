"""A task's model, trained on the ps and by Keras itself from equal parameters."""

import dataclasses

import tensorflow as tf

from tfps.export.keras_file import trained_model
from tfps.model.inputs import model_inputs
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.local_copy import LocalCopy
from tfps.worker.step import Batch, Step

SEED = tf.constant([7, 0], tf.int64)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What became of both.

    Attributes:
        model: The model on the ps.
        ours: Every parameter by its path, as the ps hold it.
        theirs: The same as Keras has it.
    """

    model: StatelessModel
    ours: dict
    theirs: dict


def train_beside_keras(
    task, batches, sync_every=1, row_updates="keras", repeated_ids="sum", **options
):
    """Trains both on the same batches.

    Args:
        task: The task, of one label.
        batches: Features by name and the label's values.
        sync_every: Batches between a pull and its push, of which there are a multiple.
        row_updates: As `train.row_updates`.
        repeated_ids: As `train.repeated_ids`.
        **options: Of the model.
    """
    model = StatelessModel(task, 0, **options)
    rules = Rules.of(task, model, row_updates, repeated_ids)
    store = ParameterStore(model, rules, ["/device:CPU:0"] * 2, 0)
    plain = trained_model(task, model, store)
    plain.compile(task.optimizer(), task.loss(), jit_compile=False)
    train = _trainer(task, Step(task, model, store), sync_every)
    for first in range(0, len(batches), sync_every):
        train(batches[first : first + sync_every])
    for features, label in batches:
        plain.train_on_batch(model_inputs(plain, task.features(), features), label)
    ours = trained_model(task, model, store)
    return Trained(model, *({v.path: v.numpy() for v in each.variables} for each in (ours, plain)))


def _trainer(task, step, sync_every):
    [label] = task.labels()

    @tf.function(autograph=False)
    def train(batches):
        if sync_every == 1:
            [(features, values)] = batches
            return step.train(step.pull(features, {label.name: values}), SEED)
        named = [(features, {label.name: values}) for features, values in batches]
        copy = LocalCopy(step.store, 1, [step.lookups(*each) for each in named])
        for number, each in enumerate(named):
            copy.update(number, step.gradients(Batch(*each, copy.pulled(number)), SEED)[1])
        with tf.control_dependencies(copy.push()):
            return tf.zeros([])

    return train
