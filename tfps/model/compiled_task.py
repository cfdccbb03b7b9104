"""Makes a task of a compiled Keras model."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from tfps import arguments
from tfps.data.feature import Feature
from tfps.data.row_format import RowFormat
from tfps.errors import UserError, reason_of
from tfps.experiment import keras_names
from tfps.experiment.task import Metric, Table, Task
from tfps.model.builder import ModelSource

CHUNK = 1 << 16  # most records that a metric is given at once
# Metrics whose state of several chunks is the sum of the states of each.
_SUMMED = (
    keras.metrics.Mean,
    keras.metrics.Sum,
    keras.metrics.AUC,
    keras.metrics.Precision,
    keras.metrics.Recall,
    keras.metrics.TruePositives,
    keras.metrics.TrueNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.FalseNegatives,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.FBetaScore,
)
_DTYPES = {"string": "string", "float32": "float32", "int32": "int64", "int64": "int64"}


def is_sum(metric: keras.metrics.Metric) -> bool:
    """Whether a metric's state of several chunks is the sum of their states."""
    update = type(metric).update_state.__module__  # not of a class of the user's own
    return isinstance(metric, _SUMMED) and update.partition(".")[0] == "keras"


class RunningKerasMetric:
    """Updates a metric chunk by chunk, as Keras's `evaluate` does batch by batch.

    In Keras's float32 sums a count stops at 2^24. Of Keras's own metrics whose states are sums, the
    chunks' states are added up in float64 here.
    """

    def __init__(self, metric: keras.metrics.Metric):
        self._metric = metric
        self._is_summed = is_sum(metric)
        self._sums: list[np.ndarray] = []
        metric.reset_state()

    def add(self, labels: Any, predictions: Any) -> None:
        """Adds labels and predictions `[records, ...]`, or structures of such."""
        records = len(np.asarray(tree.flatten(labels)[0]))
        for first in range(0, records, CHUNK):
            some = slice(first, first + CHUNK)
            self._metric.update_state(
                *(
                    tree.map_structure(lambda values, some=some: values[some], each)
                    for each in (labels, predictions)
                )
            )
            if self._is_summed:
                self._take_sums()

    def result(self) -> float:
        if self._sums:
            for variable, value in zip(self._metric.variables, self._sums, strict=True):
                variable.assign(value.astype(variable.dtype))
        return float(self._metric.result())

    def _take_sums(self) -> None:
        found = [np.asarray(variable, np.float64) for variable in self._metric.variables]
        if self._sums:
            found = [mine + its for mine, its in zip(self._sums, found, strict=True)]
        self._sums = found
        self._metric.reset_state()


class CompiledMetric:
    """One metric of `compile`, as a callable of all labels and predictions of an evaluation."""

    def __init__(self, identifier: Any):
        self._identifier = identifier
        by_object = getattr(identifier, "name", None) or getattr(identifier, "__name__", None)
        self.name = identifier if isinstance(identifier, str) else str(by_object or identifier)

    def __call__(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        """Its value after all records `[records, ...]`, as in Keras's `evaluate`."""
        running = RunningKerasMetric(self.metric(labels, predictions))
        running.add(labels, predictions)
        return running.result()

    def metric(self, labels: np.ndarray, predictions: np.ndarray) -> keras.metrics.Metric:
        """A fresh metric of Keras's; the shapes of some labels and predictions choose it."""
        found = self._identifier
        if str(found).lower() in ("accuracy", "acc"):
            return _accuracy(labels, predictions)
        if isinstance(found, str):
            found = keras.metrics.get(found)
        if isinstance(found, keras.metrics.Metric):
            return made_again(found)
        return keras.metrics.MeanMetricWrapper(found)


def made_again(metric: keras.metrics.Metric) -> keras.metrics.Metric:
    """A copy of a metric that lost its variables when this process became a chief."""
    try:
        return type(metric).from_config(metric.get_config())
    except Exception as error:  # whatever a metric of the user's own raises
        raise UserError(
            f"Keras cannot make the metric {metric.name!r} again "
            f"({reason_of(error)}); hand compile() its name or a function of "
            "labels and predictions, or give its class a get_config()"
        ) from error


def compiled_metrics(
    compiled: Mapping[str, Any], labels: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any] | None:
    """Metrics as of `Task.metrics`; None for a model that is compiled without any.

    Those of `weighted_metrics` are among them, without weights, as evaluations have none.
    """
    found: dict[str, Any] = {}
    for argument in ("metrics", "weighted_metrics"):
        given = compiled.get(argument)
        if not given:
            continue
        if len(labels) == 1:
            found |= _by_name(given)
            continue
        for label, some in _by_label(given, labels, outputs):
            found[label] = {**found.get(label, {}), **_by_name(some)}
    return found or None


def _by_label(given: Any, labels: Sequence[str], outputs: Sequence[str]) -> list[tuple[str, Any]]:
    """What is given for each label: by a label's or an output's name, or in the labels' order."""
    if isinstance(given, Mapping):
        names: dict[str, str] = dict(zip(outputs, labels, strict=False))
        names.update(zip(labels, labels, strict=True))
        return [(names.get(name) or str(name), some) for name, some in given.items()]
    if len(given) != len(labels):
        raise UserError(
            f"compile() has metrics for {len(given)} outputs, but there are {len(labels)} labels "
            f"({', '.join(labels)}); give a dict by their names"
        )
    return list(zip(labels, given, strict=True))


def _by_name(given: Any) -> dict[str, CompiledMetric]:
    """Metrics by name, from one of them, several, or a structure of them."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        given = list(given.values())
    if not isinstance(given, (list, tuple)):
        metric = CompiledMetric(given)
        return {metric.name: metric}
    found: dict[str, CompiledMetric] = {}
    for each in given:
        found |= _by_name(each)
    return found


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> keras.metrics.Metric:
    """Keras's choice for "accuracy", by the shapes of both."""
    if predictions.ndim == 1 or predictions.shape[-1] == 1:
        return keras.metrics.BinaryAccuracy()
    if labels.ndim < predictions.ndim or labels.shape[-1] == 1:
        return keras.metrics.SparseCategoricalAccuracy()
    return keras.metrics.CategoricalAccuracy()


@arguments.checked
def task_of(
    model: keras.Model | Callable[[], keras.Model],
    label: Feature | Sequence[Feature],
    features: Sequence[Feature] | None = None,
    sample_weight: Feature | Mapping[str, Feature] | Sequence[Feature] | None = None,
    class_weight: Mapping[int, float] | None = None,
    table_optimizer: Callable[[Table], keras.optimizers.Optimizer]
    | keras.optimizers.Optimizer
    | str
    | None = None,
    rows: RowFormat | None = None,
) -> Task:
    """A task of a compiled Keras model: its loss, optimizer and metrics are those of `compile`.

    Args:
        model: The model, whose weights the training begins with; it stays unchanged. Or a function
            that makes and compiles it, for tables that exceed this machine's memory.
        label: What the model learns; several for several outputs, in the outputs' order or by their
            names; none, `()`, for a model that learns its features.
        features: The inputs. Of a functional model they may be left out: ids have no vocabulary
            then, and are checked against the tables alone.
        sample_weight: A factor of each record's part in the training loss, as `sample_weight` of
            `fit`; of several labels also one for each: a dict by the labels' names, or a sequence
            in their order.
        class_weight: By class of the only label a factor of its records' parts, as `class_weight`
            of `fit`; 1 for a missing class.
        table_optimizer: That of all tables, by name or as an object; or a function from a table to
            its optimizer. By default that of `compile`.
        rows: How a row of raw text becomes a record; None where columns are named as features.

    Raises:
        UserError: If the model is not compiled, or these do not fit it.
    """
    source = ModelSource(model)
    labels = (label,) if isinstance(label, Feature) else tuple(label)
    if table_optimizer is not None and (
        inspect.isclass(table_optimizer) or not callable(table_optimizer)
    ):
        table_optimizer = _again(table_optimizer)
    if class_weight and len(labels) != 1:
        raise UserError(
            f"task_of(): class_weight= is for a model with one label, not {len(labels)}; give "
            "every record a sample_weight"
        )
    task = CompiledTask(
        source=source,
        inputs=_features_of(source) if features is None else tuple(features),
        learnt=label if isinstance(label, Feature) else labels,
        record_weight=sample_weight,  # type: ignore[arg-type]  # `checked` made tuples of sequences
        class_weights=tuple(sorted((class_weight or {}).items())),
        optimizer_of_table=table_optimizer,
        row_format=rows,
    )
    task.weights()  # for what is wrong with them
    return task


@dataclasses.dataclass(frozen=True)
class CompiledTask(Task):
    """What `task_of` makes."""

    source: ModelSource
    inputs: tuple[Feature, ...]
    learnt: Feature | tuple[Feature, ...]
    record_weight: Feature | Mapping[str, Feature] | tuple[Feature, ...] | None = None
    class_weights: tuple[tuple[int, float], ...] = ()
    optimizer_of_table: Callable[[Table], keras.optimizers.Optimizer] | None = None
    row_format: RowFormat | None = None

    def features(self) -> tuple[Feature, ...]:
        return self.inputs

    def label(self) -> Feature | tuple[Feature, ...]:
        return self.learnt

    def build_model(self) -> keras.Model:
        return self.source.make()

    def optimizer(self) -> keras.optimizers.Optimizer:
        return self.source.optimizer()

    def table_optimizer(self, table: Table) -> keras.optimizers.Optimizer:
        if self.optimizer_of_table is None:
            return self.optimizer()
        try:
            return self.optimizer_of_table(table)
        except Exception as error:  # whatever the user's code raises
            raise UserError(
                f"task_of(): the function table_optimizer= fails for table {table.name!r}: "
                f"{type(error).__name__}: {reason_of(error)}"
            ) from error

    def weight(self) -> Feature | Mapping[str, Feature] | tuple[Feature, ...] | None:
        return self.record_weight

    def class_factor(self, labels: Mapping[str, Any]) -> Any:
        if not self.class_weights:
            return None
        [target] = self.targets()
        return _weights_of_classes(labels[target.name], self.class_weights)

    def metrics(self) -> Mapping[str, Metric | Mapping[str, Metric]]:
        names = [target.name for target in self.targets()]
        found = compiled_metrics(self.source.compiled, names, self.source.output_names)
        if found is None and self.source.compiled["loss"] is None:
            return {}  # what a loss of the model's own holds its outputs against is not known
        return super().metrics() if found is None else found

    def rows(self) -> RowFormat | None:
        return self.row_format

    def _known_loss(self) -> Any:
        """The loss of `compile`, by name for several labels."""
        loss = self.source.compiled["loss"]
        if isinstance(loss, (list, tuple)):
            return {each.name: one for each, one in zip(self.targets(), loss, strict=False)}
        return loss


def _features_of(source: ModelSource) -> tuple[Feature, ...]:
    """The inputs of a functional model as features."""
    if not source.inputs:
        raise UserError(
            "task_of(): features= is missing: only the inputs of a functional model that is handed "
            "over itself say what they are"
        )
    features = []
    for tensor in source.inputs:
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype not in _DTYPES:
            raise UserError(
                f"task_of(): the input {tensor.name!r} is {dtype}, which no record holds; give "
                f"features=, each one of {', '.join(sorted(set(_DTYPES.values())))}"
            )
        features.append(Feature(tensor.name, _DTYPES[dtype], tuple(tensor.shape[1:])))
    return tuple(features)


def _again(
    given: keras.optimizers.Optimizer | str,
) -> Callable[[Table], keras.optimizers.Optimizer]:
    """Gives every table a fresh optimizer like the given one."""
    made = keras_names.optimizer(given, "task_of(): table_optimizer=")
    # Its config now: a process that becomes a chief loses the variables it made before.
    kind, config = type(made), made.get_config()
    return lambda table: kind.from_config(config)


def _weights_of_classes(labels: tf.Tensor, class_weights: Sequence[tuple[int, float]]) -> tf.Tensor:
    """The weight of each record's class, `[batch]`; 1 for a class without one, as in Keras.

    Labels are numbers of classes `[batch]` or `[batch, 1]`, or a value per class `[batch,
    classes]`, where the largest counts.
    """
    if labels.shape.rank > 1:
        labels = labels[..., 0] if labels.shape[-1] == 1 else tf.argmax(labels, -1)
    numbers = tf.cast(tf.round(labels) if labels.dtype.is_floating else labels, tf.int64)
    known = tf.constant([number for number, _ in class_weights], tf.int64)
    weights = tf.constant([weight for _, weight in class_weights], tf.float32)
    places = tf.minimum(tf.searchsorted(known, numbers), len(class_weights) - 1)
    return tf.where(tf.gather(known, places) == numbers, tf.gather(weights, places), 1.0)
