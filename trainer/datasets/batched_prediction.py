"""Predicts records in batches of one size, however many of them are read at once."""

import collections
import concurrent.futures
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.export.loaded_model import ExportedModel
from trainer.datasets.record_columns import RecordColumns

_AHEAD = 2  # reads that are under way or done while the model computes

Predictions = Mapping[str, npt.NDArray[np.float32]]


def predict_all(
    model: ExportedModel, records: Iterator[RecordColumns], batch_size: int
) -> Iterator[tuple[RecordColumns, Predictions]]:
    """Predicts records, and reads the next ones meanwhile.

    A batch takes records from several reads, and from several files: the model is given the same
    batches whatever the records come in.

    Args:
        records: In order; asked for in a thread of its own.
        batch_size: Records per call of the model; the last batch may be smaller.

    Yields:
        The records as they were read, with their predictions `[count, ...]` by name.
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
        """Puts rows behind the others; each column has so many."""
        self._portions.append((columns, count))
        self.count += count

    def take(self, count: int) -> dict[str, Any]:
        """Takes the first rows; there must be so many."""
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
