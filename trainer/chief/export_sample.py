"""The records that an exported model is tried on before it counts."""

import itertools

import numpy as np
import tensorflow as tf

from tfps.cluster import failures
from tfps.data.batches import Batching, read_good_batches
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.export.parameters import Parameters, rows_of_lookups
from tfps.export.saved_model import Sample
from tfps.model.inputs import predict_by_name
from tfps.model.stateless_model import Features, Labels
from tfps.store.exchange import ids_of_group
from trainer.chief.inputs import first_records

_SIZE = 32  # records that are read at once; where one of them is bad, all are left out
_RECORDS, _MEASURED_RECORDS = 128, 4096
_MOST_VALUES = 5  # of a drawn feature that varies in length


def predict_sample(
    task: Task, parameters: Parameters, data: Manifest | None, is_measured: bool = False
) -> Sample:
    """What the parameters predict of some records, for `export`.

    Args:
        data: The dataset whose first records these are, of which some may be bad; None for records
            that are drawn.
        is_measured: Whether metrics are to be measured with it, for which it is larger.
    """
    records = _MEASURED_RECORDS if is_measured else _RECORDS
    features, labels = _read_records(task, data, records) if data else _drawn_records(task)
    try:
        predictions = _predict(task, parameters, features, labels)
    except tf.errors.InvalidArgumentError as error:
        reason = failures.first_line(error)
        if data:
            path = first_records(data, records).path
            raise RunError(
                f"the model cannot be exported, since it fails on the first records of {path}: "
                f"{reason}; correct it, and the same command exports what was trained"
            ) from None
        raise UserError(
            "the exported model is to be tried on records, and it fails on those that are drawn "
            f"({reason}): name a dataset of it with --data"
        ) from None
    values = {**features, **labels}
    known = {each.name: values[each.name].numpy() for each in task.measured()} if data else {}
    return Sample.of(parameters.model, features, predictions, known)


def _predict(
    task: Task, parameters: Parameters, features: Features, labels: Labels
) -> dict[str, np.ndarray]:
    """Predictions by name of a batch, for which no more is read than it asks for."""
    model = parameters.model
    lookups, layout = model.lookups(features, training=False), parameters.layout
    for index in range(len(layout.groups)):
        ids_of_group(layout, index, lookups)  # refuses ids that no table has
    asked = [(lookup.table, lookup.ids.numpy()) for lookup in lookups]

    @tf.function(autograph=False)
    def predict(
        dense: list[tf.Tensor],
        state: list[tf.Tensor],
        rows: list[tf.Tensor],
        features: Features,
        labels: Labels,
    ) -> dict[str, tf.Tensor]:
        seed = tf.zeros([2], tf.int64)
        forward = model.forward(dense, state, rows, seed, features, labels, training=False)
        return predict_by_name(task, forward.outputs)

    found = predict(
        parameters.read_dense(),
        parameters.read_state(),
        rows_of_lookups(parameters, asked),
        features,
        labels,
    )
    return {name: value.numpy() for name, value in found.items()}


def _read_records(task: Task, data: Manifest, records: int) -> tuple[Features, Labels]:
    source = first_records(data, records)
    bounds = tf.constant(0, tf.int64), tf.constant(-(-source.end // _SIZE), tf.int64)
    seed = tf.constant(0, tf.int64)
    read = read_good_batches(source.tensors(), Batching(task.schema(), _SIZE), seed, bounds)
    found = list(itertools.takewhile(lambda batch: batch[0] >= 0, read))
    if not found:
        raise RunError(
            f"none of the first {source.end} records of {source.path} can be read, with which the "
            "exported model is to be tried; when the storage answers again, the same command "
            "exports it"
        )
    several = [(features, labels) for _, (_, features, labels) in found]
    features, labels = (
        {name: tf.concat([each[name] for each in some], 0) for name in some[0]}
        for some in zip(*several, strict=True)
    )
    return features, labels


def _drawn_records(task: Task) -> tuple[Features, Labels]:
    draw = np.random.default_rng(0)
    lengths = draw.integers(0, _MOST_VALUES + 1, _SIZE)  # of all: weights must fit their ids
    features, labels = (
        {feature.name: _drawn_values(feature, draw, lengths) for feature in some}
        for some in (task.features(), task.labels())
    )
    return features, labels


def _drawn_values(
    feature: Feature, draw: np.random.Generator, lengths: np.ndarray
) -> tf.Tensor | tf.RaggedTensor:
    """Values of `_SIZE` records; ids of which no number is known are 0, which every table has."""
    fixed = [_SIZE, *(size for size in feature.shape if size is not None)]
    shape = [int(lengths.sum())] if feature.is_ragged else fixed
    if feature.dtype == "float32":
        values = tf.constant(draw.standard_normal(shape, np.float32))
    elif feature.dtype == "string":
        values = tf.fill(shape, "")
    else:
        values = tf.constant(draw.integers(0, feature.vocabulary_size or 1, shape), tf.int64)
    return tf.RaggedTensor.from_row_lengths(values, lengths) if feature.is_ragged else values
