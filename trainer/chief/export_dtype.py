"""What it costs and saves to keep the rows of an exported model as another dtype than float32."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tfps import byte_size
from tfps.evaluation.metrics import RunningMetrics
from tfps.experiment.experiment import FLOAT32
from tfps.experiment.task import Task
from tfps.export.saved_model import Sample
from tfps.export.sliced_variables import RowEncoding
from tfps.planner.memory import ExportSize
from tfps.store.layout import StoreLayout


@dataclasses.dataclass(frozen=True)
class DtypeCost:
    """A dtype beside float32.

    Attributes:
        sizes: Bytes of the exported model's files, at least, and with float32.
        records: Of which both were measured; 0 where no data is known.
        metrics: By name the exported model's, and with float32.
    """

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
        """A sentence."""
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
