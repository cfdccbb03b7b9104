"""Models that others publish the kind of, trained by Keras's `fit` and by tfps on equal records."""

import numpy as np
import pytest
import tensorflow as tf

import tfps
from benchmarks.fidelity import sum_by_row
from tests.keras_models.cases import ALL
from tests.keras_models.kept import LOCAL, keep
from tests.training_fixtures import Trainer
from tfps.export.keras_file import trained_model
from tfps.export.loaded_model import ExportedModel
from tfps.model.inputs import model_inputs

pytestmark = pytest.mark.models
REPEATING = ("gru4rec", "bidirectional_lstm", "bag_of_words")  # ids, in each batch


def drawn(case):
    """The features and the labels of a model's records, by name; always the same."""
    columns = case.columns(np.random.default_rng(1), case.records)
    labels = case.label if isinstance(case.label, tuple) else (case.label,)
    features = {feature.name: columns[feature.name] for feature in case.features}
    of_labels = {label.name: columns[label.name] for label in labels}
    return features, of_labels


def for_keras(case, model, features, labels):
    """The same as tensors in the structures that the model is called and compiled with."""
    tensors = tensors_of(case, features)
    y = {name: tensor(column) for name, column in labels.items()}
    if not isinstance(case.label, tuple):
        y = y[case.label.name]
    elif hasattr(model, "outputs") and isinstance(model.output, list):  # it is functional
        y = list(y.values())
    return as_tuple(model_inputs(model, case.features, tensors)), as_tuple(y)


def as_tuple(values):
    """Of a list `tf.data` would make one tensor."""
    return tuple(values) if isinstance(values, list) else values


def tensors_of(case, features):
    """Tensors of the features' dtypes by name."""
    return {each.name: tensor(features[each.name], each.dtype) for each in case.features}


def tensor(column, dtype=None):
    if column.dtype == object and isinstance(column[0], np.ndarray):
        return tf.ragged.constant([row.tolist() for row in column], dtype)
    return tf.constant(column.tolist() if column.dtype == object else column, dtype)


def trained(case, directory, **settings):
    """A trainer, the plain model with its initial parameters, and what both train on."""
    task = tfps.task_of(case.build, case.label, case.features)
    features, labels = drawn(case)
    manifest = tfps.write_dataset(
        str(directory / "data"), features, labels, features=case.features, label=task.targets()
    )
    trainer = Trainer(manifest, task, batch_size=case.batch_size, shuffle_buffer=0, **settings)
    plain = trained_model(task, trainer.model, trainer.store)
    queue = trainer.queue(case.epochs)
    for _ in range(case.epochs):
        trainer.coordinator.train(queue, lambda: False, lambda progress: None)
        queue.next_epoch()
    return trainer, plain, for_keras(case, plain, features, labels)


def fitted(case, model, x, y):
    """The loss where `fit` begins, and where it ends."""
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(case.batch_size)
    before = model.evaluate(batches, verbose=0, return_dict=True)["loss"]
    model.fit(batches, epochs=case.epochs, shuffle=False, verbose=0)
    return before, model.evaluate(batches, verbose=0, return_dict=True)["loss"]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_model_ends_where_fit_ends(case, tmp_path):
    trainer, plain, (x, y) = trained(case, tmp_path)
    ours = trainer.evaluate()
    sum_by_row(plain.optimizer)
    before, theirs = fitted(case, plain, x, y)
    keep(case, LOCAL, {"before": before, "keras": theirs, "tfps": ours.loss})
    assert theirs < before
    assert abs(ours.loss - theirs) <= case.tolerance * (before - theirs)
    trainer.export(tmp_path / "export")
    exported = ExportedModel.load(str(tmp_path / "export"))
    if case.is_drawn:
        return
    found = exported.predict(tensors_of(case, drawn(case)[0]))
    for name, predictions in found.items():
        np.testing.assert_allclose(predictions, ours.predictions[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", REPEATING)
def test_with_each_a_model_whose_ids_repeat_ends_where_fit_ends_as_it_is(name, tmp_path):
    [case] = [each for each in ALL if each.name == name]
    trainer, plain, (x, y) = trained(case, tmp_path, repeated_ids="each")
    ours = trainer.evaluate()
    before, theirs = fitted(case, plain, x, y)
    assert abs(ours.loss - theirs) <= case.tolerance * (before - theirs)
