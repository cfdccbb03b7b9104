"""Predicts with an exported model and writes a CSV file.

    python -m trainer.predict --model=JOB_DIR/export --data=adult.test --output=FILE.csv \
        --config=configs/census.py

`--data` is a dataset's directory, a TFRecord file or a glob of them (gzip when they end in `.gz`),
or a text file: with `--config` its rows are read as the task says, the labels' columns optional;
without, its header names the features (`NAME`, or `NAME_0`, `NAME_1`, … for a vector); the
values of a feature that varies in length stand in one cell, divided by `|`.

The output has a header and one line per record in order: `label,prediction` when the labels are
known, else `prediction`; a vector is `prediction_0,prediction_1,…`. Several labels or predictions
have their names behind: `label_NAME`, `prediction_NAME`.
"""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import csv
import dataclasses
import io
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import flags
from tqdm import tqdm

from tfps.data.row_format import RowFormat
from tfps.errors import UserError
from tfps.experiment import loader, metrics, overrides
from tfps.export.loaded_model import ExportedModel
from tfps.storage import files, preflight
from tfps.storage.preflight import Use
from trainer import entry
from trainer.datasets.prediction_input import FORMATS, PredictionInput
from trainer.datasets.record_batch import RecordBatch


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a run of predictions came to.

    Attributes:
        records: How many were predicted.
        bad_rows: How many rows were left out.
        auc: Of labels and predictions; None where it is not defined.
        without_auc: Why it is not.
    """

    records: int
    bad_rows: int
    auc: float | None
    without_auc: str


class _Output:
    """A CSV file that appears under its name once it is whole."""

    def __init__(self, path: str, overwrite: bool):
        self._path = path
        self._partial = f"{path}.partial"
        self._overwrite = overwrite
        self._has_header = False
        self._file = tf.io.gfile.GFile(self._partial, "w")

    def open(self) -> None:
        """Makes the file, under the name that it has until it is whole."""
        try:
            if files.is_directory(self._path):
                raise UserError(f"--output={self._path} is a directory; name a file")
            if files.exists(self._path) and not self._overwrite:
                raise UserError(f"--output={self._path} exists; name another, or say --overwrite")
            self._file.write("")  # which opens it
        except tf.errors.OpError as error:
            raise self._unwritable(error) from None

    def write(
        self, labels: Mapping[str, npt.NDArray[Any]], predictions: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        """Adds one line per record."""
        parts = [
            (kind if len(values) == 1 else f"{kind}_{name}", value)
            for kind, values in (("label", labels), ("prediction", predictions))
            for name, value in values.items()
        ]
        flat = [(name, values.reshape(len(values), -1)) for name, values in parts]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._has_header:
            writer.writerow(name for part in flat for name in _columns(*part))
            self._has_header = True
        cells = [[list(map(_cell, row)) for row in values.tolist()] for _, values in flat]
        writer.writerows(
            [cell for part in row for cell in part] for row in zip(*cells, strict=True)
        )
        try:
            self._file.write(text.getvalue())
        except tf.errors.OpError as error:
            raise self._unwritable(error) from None

    def finish(self) -> None:
        """Gives the file its name."""
        try:
            self._file.close()
            tf.io.gfile.rename(self._partial, self._path, overwrite=self._overwrite)
        except tf.errors.OpError as error:
            raise self._unwritable(error) from None

    def discard(self) -> None:
        """Removes what was written, when the run has failed."""
        try:
            self._file.close()
            tf.io.gfile.remove(self._partial)
        except tf.errors.OpError as error:
            sys.stderr.write(f"{self._partial} is left over: {error.message}\n")

    def _unwritable(self, error: tf.errors.OpError) -> UserError:
        return UserError(
            f"--output={self._path} cannot be written: {error.message}; name a file in a directory "
            "that exists and is yours to write"
        )


def predict(
    model: ExportedModel, source: PredictionInput, output: str, batch_size: int, overwrite: bool
) -> Predictions:
    """Predicts all records and writes the file.

    Args:
        model: The exported model.
        source: The records.
        output: Path of the CSV file, local or `gs://`.
        batch_size: Records per call of the model.
        overwrite: Replaces a file of that name.

    Returns:
        What to tell.

    Raises:
        UserError: If a record is bad, there is none, or the output exists or cannot be written.
    """
    sink = _Output(output, overwrite)
    sink.open()
    all_labels: list[dict[str, npt.NDArray[Any]]] = []
    all_predictions: list[dict[str, npt.NDArray[np.float32]]] = []
    records = 0
    finished = False
    try:
        with tqdm(total=source.total, unit=" records", disable=None, leave=False) as progress:
            is_labelled: bool | None = None
            for batch in source.batches(batch_size):
                is_labelled = _is_labelled(batch, model, is_labelled)
                inputs, labels = batch.parse(model.features, model.labels if is_labelled else ())
                predictions = model.predict(inputs)
                known = {name: value.numpy() for name, value in labels.items()}
                sink.write(known, predictions)
                all_predictions.append(predictions)
                if known:
                    all_labels.append(known)
                records += len(batch.numbers)
                progress.update(len(batch.numbers))
        if not all_predictions:
            raise UserError(f"--data={source.data} holds no record")
        sink.finish()
        finished = True
    finally:
        if not finished:
            sink.discard()
    auc, reason = _auc(all_labels, all_predictions)
    return Predictions(records, source.bad_rows, auc, reason)


def main() -> None:
    """Predicts what the flags name and prints a summary."""
    values = flags.FLAGS
    started = time.monotonic()
    preflight.check(
        [
            Use("--model", values.model),
            Use("--data", values.data),
            Use("--output", values.output, writes=True),
        ]
    )
    model = ExportedModel.load(values.model)
    row_format = _row_format(values.config, values.set, model)
    source = PredictionInput.find(
        values.data, values.format, model, row_format, values.max_bad_rows
    )
    result = predict(model, source, values.output, values.batch_size, values.overwrite)
    left_out = f", {result.bad_rows} bad rows left out" if result.bad_rows else ""
    auc = result.without_auc if result.auc is None else f"{result.auc:.7f}"
    sys.stdout.write(
        f"{result.records:,} records predicted{left_out}, {time.monotonic() - started:.1f} s\n"
        f"AUC: {auc}\n"
        f"predictions: {values.output}\n"
    )


def _row_format(path: str | None, texts: Sequence[str], model: ExportedModel) -> RowFormat | None:
    """The row format of a config's task, which must make the model's records."""
    if path is None:
        if texts:
            raise UserError(f"--set={texts[0]} overrides a field of a config; give --config too")
        return None
    task = overrides.apply(loader.load(path), texts).task
    schemas = [feature.schema() for feature in task.features()]
    labels = [label.schema() for label in task.labels()]
    model.check_schema(schemas, labels, f"--config={path}")
    return task.rows()


def _is_labelled(batch: RecordBatch, model: ExportedModel, before: bool | None) -> bool:
    """Whether a batch has labels, as the ones before it."""
    found = batch.has_labels(model.labels)
    if before is not None and found != before:
        states = ("has a label", "have none") if found else ("has no label", "have one")
        raise UserError(
            f"{batch.where(0)} {states[0]}, but the records before it {states[1]}; predict them "
            "in two runs"
        )
    return found


def _auc(
    labels: Sequence[Mapping[str, npt.NDArray[Any]]],
    predictions: Sequence[Mapping[str, npt.NDArray[np.float32]]],
) -> tuple[float | None, str]:
    """The AUC, or None and the reason."""
    if not labels:
        return None, "not known without labels"
    if len(labels[0]) > 1 or len(predictions[0]) > 1:
        return None, "not defined for several labels or predictions"
    truth, scores = (
        np.concatenate([value for part in parts for value in part.values()])
        for parts in (labels, predictions)
    )
    if scores.size != len(scores) or truth.size != len(truth):
        return None, "not defined for vectors"
    if truth.dtype == object or not np.isin(truth, (0, 1)).all():
        return None, "not defined: labels are not 0 and 1"
    if len(np.unique(truth)) < 2:
        return None, "not defined: all labels are equal"
    value = metrics.auc(truth, scores)
    return (None, "not defined: a prediction is nan") if math.isnan(value) else (value, "")


def _columns(name: str, values: npt.NDArray[Any]) -> list[str]:
    width = values.shape[1]
    return [name] if width == 1 else [f"{name}_{index}" for index in range(width)]


def _cell(value: Any) -> str:
    """A value as text; nine significant digits tell every float32 from its neighbours."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _define_flags() -> None:
    flags.DEFINE_string("model", None, "Export directory of a trained job.", required=True)
    flags.DEFINE_string("data", None, "Dataset directory, TFRecords or text.", required=True)
    flags.DEFINE_string("output", None, "CSV file to write.", required=True)
    flags.DEFINE_string("config", None, "Config whose task reads the rows of a text file.")
    flags.DEFINE_multi_string("set", [], "Override of a config's field: task.dim=8.")
    flags.DEFINE_enum("format", "auto", FORMATS, "What --data is; auto tells by its name.")
    flags.DEFINE_integer("batch_size", 1024, "Records per call of the model.", lower_bound=1)
    flags.DEFINE_integer("max_bad_rows", 0, "Bad rows that may be left out.", lower_bound=0)
    flags.DEFINE_boolean("overwrite", False, "Replace the output file.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main)
