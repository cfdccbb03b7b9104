"""Predicts records in batches of one size, however many of them are read at once."""

import collections
import concurrent.futures
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data.row_format import RowFormat
from tfps.errors import UserError
from tfps.evaluation.accumulators import BoundedAuc, RunningAuc
from tfps.export.loaded_model import ExportedModel
from trainer.datasets.prediction_input import PredictionInput, format_of
from trainer.datasets.record_columns import RecordColumns

_EXACT_RECORDS = 100_000_000  # 5 bytes each are held until all are known
_AHEAD = 2  # reads that are under way or done while the model computes
Labels = Mapping[str, npt.NDArray[Any]]
Predictions = Mapping[str, npt.NDArray[np.float32]]
_BATCH_SIZE = 4096  # as of `trainer.predict`, which gives the same predictions to the last bit


class PredictionAucs:
    """The AUC of each label and its prediction: that of its name, or the only one of the only one.

    Where none is defined, there is a reason.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._of_label: dict[str, _PairAuc] = {}

    def add(self, labels: Labels, predictions: Predictions) -> None:
        """Takes labels (none where they are not known) and predictions of some records, by name."""
        if not labels:
            self._reason = "not known without labels"
            return
        pairs = {name: (labels[name], predictions.get(name)) for name in labels}
        if len(labels) == len(predictions) == 1:
            [truth], [scores] = labels.values(), predictions.values()
            pairs = {"": (truth, scores)}
        for name, (of_label, predicted) in pairs.items():
            if predicted is not None:
                self._of_label.setdefault(name, _PairAuc()).add(of_label, predicted)
        if not self._of_label:
            self._reason = "not defined: no prediction has the name of one of several labels"

    def result(self) -> tuple[dict[str, BoundedAuc], str]:
        """The AUCs by label, "" for the only one, and the reason if there is none."""
        results = {name: each.result() for name, each in self._of_label.items()}
        found = {name: auc for name, (auc, _) in results.items() if auc}
        reasons = [reason for _, reason in results.values()] or [self._reason]
        return found, "" if found else reasons[0]


class _PairAuc:
    """The AUC of a label and a prediction, where one is defined of them."""

    def __init__(self) -> None:
        self._reason = ""
        self._running = RunningAuc(_EXACT_RECORDS)
        self._found: set[int] = set()  # labels

    def add(self, truth: npt.NDArray[Any], scores: npt.NDArray[np.float32]) -> None:
        self._reason = self._reason or _why_not(truth, scores)
        if self._reason:
            self._running = RunningAuc()  # nothing is held any more
            return
        self._found.update(np.unique(truth).tolist())
        self._running.add(truth, scores)

    def result(self) -> tuple[BoundedAuc | None, str]:
        """The AUC, or None and the reason."""
        if self._reason:
            return None, self._reason
        if len(self._found) < 2:
            return None, "not defined: all labels are equal"
        found = self._running.result()
        if math.isnan(found.value):
            return None, "not defined: a prediction is nan"
        return found, ""


def _why_not(truth: npt.NDArray[Any], scores: npt.NDArray[np.float32]) -> str:
    """Why no AUC is defined of some records; "" where one is."""
    if scores.size != len(scores) or truth.size != len(truth):
        return "not defined for vectors"
    if truth.dtype == object or not np.isin(truth, (0, 1)).all():
        return "not defined: labels are not 0 and 1"
    return ""


def predict_all(
    model: ExportedModel, records: Iterator[RecordColumns], batch_size: int
) -> Iterator[tuple[RecordColumns, Predictions]]:
    """Predicts records in batches of one size, and reads the next ones meanwhile in a thread.

    A batch takes records from several reads and files: batches are the same whatever the records
    come in. Yields the records as they were read, with their predictions `[count, ...]` by name.
    """
    waiting: collections.deque[RecordColumns] = collections.deque()
    inputs, outputs = _Queue(), _Queue()

    def predict(count: int) -> None:
        outputs.add(model.predict(inputs.take(count)), count)

    for found in _read_ahead(records):
        waiting.append(found)
        inputs.add(found.features, found.count)
        while inputs.count >= batch_size:
            predict(batch_size)
        while waiting and outputs.count >= waiting[0].count:
            yield waiting[0], outputs.take(waiting.popleft().count)
    if inputs.count:
        predict(inputs.count)
    for found in waiting:
        yield found, outputs.take(found.count)


class _Queue:
    """Rows of columns, put in and taken out in other portions."""

    def __init__(self) -> None:
        self.count = 0
        self._portions: collections.deque[tuple[Mapping[str, Any], int]] = collections.deque()

    def add(self, columns: Mapping[str, Any], count: int) -> None:
        self._portions.append((columns, count))
        self.count += count

    def take(self, count: int) -> dict[str, Any]:
        taken = []
        self.count -= count
        while count:
            columns, held = self._portions.popleft()
            used = min(count, held)
            taken.append({name: values[:used] for name, values in columns.items()})
            if used < held:
                rest = {name: values[used:] for name, values in columns.items()}
                self._portions.appendleft((rest, held - used))
            count -= used
        return {name: joined([each[name] for each in taken]) for name in taken[0]}


def joined(parts: list[Any]) -> Any:
    """Parts of a column end to end: arrays, or ragged tensors."""
    if len(parts) == 1:
        return parts[0]
    return tf.concat(parts, 0) if isinstance(parts[0], tf.RaggedTensor) else np.concatenate(parts)


def _read_ahead(records: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
    """The same, read by a thread while the one who asks does something else."""
    with concurrent.futures.ThreadPoolExecutor(1, "reader") as reader:
        reads = collections.deque(reader.submit(next, records, None) for _ in range(_AHEAD))
        while (found := reads.popleft().result()) is not None:
            reads.append(reader.submit(next, records, None))
            yield found


@dataclasses.dataclass(frozen=True)
class PredictedRecords:
    """The first records of some data, in order, by name: features, labels and float32 predictions.

    Features are `[count, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an array, of bytes
    objects for strings. Labels are none where the data have none.
    """

    count: int
    has_more: bool
    features: Mapping[str, Any]
    labels: Labels
    predictions: Predictions

    @classmethod
    def read(
        cls,
        model: ExportedModel,
        data: str,
        row_format: RowFormat | None = None,
        most: int = 100_000,
    ) -> Self:
        """Reads the first records of what `trainer.predict` takes as `--data`; predicts them."""
        kind = format_of(data)
        reads_rows = kind in ("csv", "parquet")
        source = PredictionInput.find(data, kind, model, row_format if reads_rows else None)
        parts, count = [], 0
        for found, predictions in predict_all(model, _cut(source, most + 1), _BATCH_SIZE):
            parts.append((found.features, found.labels, predictions))
            count += found.count
        if not count:
            raise UserError(f"{data} holds no record")
        columns = ([some[k] for some in parts] for k in range(3))
        kept = [
            {name: joined([each[name] for each in some])[:most] for name in some[0]}
            for some in columns
        ]
        return cls(min(count, most), count > most, *kept)


def _cut(source: PredictionInput, most: int) -> Iterator[RecordColumns]:
    """The first records, not more than asked for."""
    for found in source.columns(_BATCH_SIZE):
        if found.count >= most:
            yield dataclasses.replace(
                found,
                count=most,
                features={name: values[:most] for name, values in found.features.items()},
                labels={name: values[:most] for name, values in found.labels.items()},
            )
            return
        most -= found.count
        yield found
