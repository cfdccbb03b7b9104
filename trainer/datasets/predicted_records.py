"""Records with their predictions, all in memory, for whoever looks at them together."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tfps.data.row_format import RowFormat
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from trainer.datasets.batched_prediction import joined, predict_all
from trainer.datasets.prediction_input import PredictionInput, format_of
from trainer.datasets.record_columns import RecordColumns

_BATCH_SIZE = 4096  # as of `trainer.predict`, which gives the same predictions to the last bit


@dataclasses.dataclass(frozen=True)
class PredictedRecords:
    """The first records of some data, in order.

    Attributes:
        features: By name, each `[count, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an
            array, of bytes objects for strings.
        labels: By name, arrays `[count, *shape]`; none where the data have no labels.
        predictions: By name, `[count, ...]` float32.
    """

    count: int
    has_more: bool
    features: Mapping[str, Any]
    labels: Mapping[str, npt.NDArray[Any]]
    predictions: Mapping[str, npt.NDArray[np.float32]]

    @classmethod
    def read(
        cls,
        model: ExportedModel,
        data: str,
        row_format: RowFormat | None = None,
        most: int = 100_000,
    ) -> Self:
        """Reads records and predicts them.

        Args:
            data: What `trainer.predict` takes as `--data`: a dataset's directory, TFRecord, text or
                Parquet files, local or `gs://`.
            row_format: How rows become records; of TFRecords it is not asked.
            most: How many records are read at most.
        """
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
