"""What a run exports: a new version of the model, of its parameters or of a checkpoint."""

import dataclasses
import itertools
import json
import logging
import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps import byte_size
from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.cluster import failures
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_source import Batching, read_good_batches
from tfps.errors import RunError, UserError
from tfps.evaluation.metrics import RunningMetrics
from tfps.experiment.experiment import FLOAT32
from tfps.experiment.task import Task
from tfps.export import delta_writer, versions
from tfps.export.delta_writer import Agreed
from tfps.export.deltas import Delta
from tfps.export.exported_files import BASE, CHECKPOINT, SCHEMA_FILE
from tfps.export.parameters import (
    CheckpointParameters,
    Parameters,
    StoreParameters,
    rows_of_lookups,
)
from tfps.export.saved_model import ExportForm, Sample, export
from tfps.export.sliced_variables import RowEncoding
from tfps.model.inputs import predict_by_name
from tfps.model.stateless_model import Features, Labels
from tfps.planner.memory import ExportSize
from tfps.storage import files
from tfps.store.exchange import ids_of_group
from tfps.store.layout import StoreLayout
from tfps.store.parameter_store import ParameterStore
from trainer.chief.export_conditions import unmet
from trainer.chief.run_inputs import RunInputs, first_records

_SIZE = 32  # records that are read at once; where one of them is bad, all are left out
_RECORDS, _MEASURED_RECORDS = 128, 4096
_MOST_VALUES = 5  # of a drawn feature that varies in length
_METRICS, _DTYPE = "metrics", "dtype"  # in the schema's file
_log = logging.getLogger(__name__)


def predict_sample(
    task: Task, parameters: Parameters, data: Manifest | None, is_measured: bool = False
) -> Sample:
    """Predictions of some records, for `export`: the first of `data`, or drawn ones."""
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


@dataclasses.dataclass(frozen=True)
class DtypeCost:
    """A dtype next to float32: file bytes and metrics of both; `records` 0 without data."""

    dtype: str
    sizes: tuple[int, int]
    records: int
    metrics: Mapping[str, tuple[float, float]]

    @classmethod
    def of(
        cls,
        task: Task,
        layout: StoreLayout,
        encoding: RowEncoding,
        sample: Sample,
        predictions: Mapping[str, np.ndarray],
    ) -> "DtypeCost":
        """Measures the task's metrics of two models' predictions of the same records."""
        own, float32 = (ExportSize.of(layout, dtype) for dtype in (encoding.dtype, FLOAT32))
        sizes = own.file_bytes, float32.file_bytes
        if not sample.labels:
            return cls(encoding.dtype, sizes, 0, {})
        found, exact = (_measure(task, sample, each) for each in (predictions, sample.predictions))
        records = len(next(iter(sample.labels.values())))
        metrics = {name: (value, exact[name]) for name, value in found.items()}
        return cls(encoding.dtype, sizes, records, metrics)

    def __str__(self) -> str:
        own, exact = map(byte_size.show, self.sizes)
        said = f"rows as {self.dtype}: {own} where float32 takes {exact}"
        if not self.records:
            return f"{said}; name a dataset to know what it costs"
        costs = [
            f"{name} {value:.6f} where float32 gives {before:.6f} ({value - before:+.6f})"
            for name, (value, before) in self.metrics.items()
        ]
        return f"{said}; on {self.records:,} records {', '.join(costs) or 'nothing is measured'}"


def _measure(task: Task, sample: Sample, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
    running = RunningMetrics(task)
    running.add(sample.labels, predictions)
    return {name: found.value for name, found in running.result().items()}


class Exported(NamedTuple):
    """Where a model went; if `train.export_if` refuses it, `newest` is another or None."""

    path: str
    newest: str | None

    @property
    def refused(self) -> str | None:
        """Its directory if it is not the newest version."""
        return self.path if self.path != self.newest else None


class Version(NamedTuple):
    """An exported version, and what it is of."""

    path: str
    checkpoint: str
    base: str | None  # the full checkpoint that this needs or is; None where it does not say


class Exporter:
    """Exports models of a run, each as a version of its own."""

    def __init__(self, inputs: RunInputs, base: str = ""):
        """`base` is the directory of versions, "" for the run's, or one for the model itself."""
        self._inputs = inputs
        settings = inputs.settings
        self._base = base or settings.export or settings.job_dir.export
        self._has_versions = bool(base) or not settings.export
        # Of an evaluator's versions each is better than all before.
        self._conditions = () if base else settings.experiment.train.export_if
        self._form = ExportForm(RowEncoding(settings.experiment.train.export_dtype))

    def exported(self, checkpoint: str) -> str | None:
        """The newest version, if it is of that checkpoint and written as the run would write it."""
        newest = versions.newest_version(self._base) if self._has_versions else None
        schema = _schema_of(newest) if newest else {}
        dtype = self._inputs.settings.experiment.train.export_dtype
        is_same = (schema.get(CHECKPOINT), schema.get(_DTYPE)) == (checkpoint, dtype)
        return newest if is_same else None

    def newest(self) -> Version | None:
        """The newest version that says which checkpoint it is of."""
        path = versions.newest_version(self._base) if self._has_versions else None
        schema = _schema_of(path) if path else {}
        checkpoint = schema.get(CHECKPOINT)
        return Version(path, checkpoint, schema.get(BASE)) if path and checkpoint else None

    def export_delta(
        self, version: Version, checkpoint: Checkpoint, metrics: Mapping[str, float]
    ) -> tuple[str, Delta] | None:
        """Exports what a checkpoint holds as a delta of a version, its path and content.

        None if `train.export_if` refuses it, which is logged.
        """
        if problem := unmet(self._conditions, metrics, metrics_of(version.path)):
            _log.warning("%s: %s stays as it is", problem, version.path)
            return None
        plan = self._inputs.plan
        parameters = CheckpointParameters(checkpoint, plan.model, plan.rules)
        agreed = Agreed(version.checkpoint, checkpoint.name)
        return delta_writer.write(version.path, agreed, parameters, self._form, metrics)

    def export_store(
        self,
        store: ParameterStore,
        checkpoint: str,
        metrics: Mapping[str, float] | None,
        base: str | None = None,
    ) -> Exported:
        """Exports the model with a store's parameters, once it predicts what they do.

        `checkpoint` has the same parameters, and is built on `base`.
        """
        parameters = StoreParameters(self._inputs.plan.model, store)
        return self._export(parameters, checkpoint, base, metrics)

    def export_saved(self, checkpoint: Checkpoint, metrics: Mapping[str, float] | None) -> Exported:
        """Exports the model of a checkpoint, which this process reads by itself."""
        try:
            plan = self._inputs.plan
            parameters = CheckpointParameters(checkpoint, plan.model, plan.rules)
            return self._export(parameters, checkpoint.name, checkpoint.base.name, metrics)
        except DamagedCheckpointError as damage:
            raise RunError(
                f"checkpoint {checkpoint.path}, of the best evaluation, is damaged: {damage}; "
                "export the last one with --train.export=last"
            ) from None

    def _export(
        self,
        parameters: Parameters,
        checkpoint: str,
        base: str | None,
        metrics: Mapping[str, float] | None,
    ) -> Exported:
        experiment, data = self._inputs.settings.experiment, self._inputs.data
        task, train = experiment.task, experiment.train
        form = self._form
        encoding = form.encoding
        sample = predict_sample(
            task, parameters, data.eval or data.train.of_epoch(0), not encoding.is_exact
        )
        found = self._place(metrics or {})
        facts = {
            CHECKPOINT: checkpoint,
            BASE: base,
            _METRICS: dict(metrics or {}),
            _DTYPE: train.export_dtype,
        }
        predictions = export(task, parameters, found.path, sample, form, facts)
        if not encoding.is_exact:
            _log.info("%s", DtypeCost.of(task, parameters.layout, encoding, sample, predictions))
        if self._has_versions and not found.refused:
            versions.delete_old(self._base, train.keep_exports)
        return found

    def _place(self, metrics: Mapping[str, float]) -> Exported:
        """Where a model goes of which this was measured."""
        if not self._has_versions:
            return Exported(self._base, self._base)
        newest = versions.newest_version(self._base)
        known = metrics_of(newest) if newest and self._conditions else {}
        if not (problem := unmet(self._conditions, metrics, known)):
            path = versions.next_version(self._base)
            return Exported(path, path)
        path = versions.refused_path(self._base)
        stays = f"{newest} stays the newest version" if newest else "there is no version yet"
        _log.warning("%s: the model is exported to %s, and %s", problem, path, stays)
        return Exported(path, newest)


def metrics_of(version: str) -> dict[str, Any]:
    """What was measured of an exported version, by metric; nothing where it does not say."""
    found = _schema_of(version).get(_METRICS)
    if not isinstance(found, dict):
        _log.warning("%s does not say what was measured of it", version)
        return {}
    return found


def _schema_of(version: str) -> dict[str, Any]:
    """What a version's file says of it; nothing if it cannot be read."""
    try:
        content = json.loads(files.read(posixpath.join(version, SCHEMA_FILE)))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}
