"""Predicts whatever is read and writes a file: what `trainer.predict` does."""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import dataclasses
import sys
import time
from collections.abc import Mapping

from absl import flags

from tfps.errors import UserError, listed
from tfps.evaluation.accumulators import BoundedAuc
from tfps.export.loaded_model import ExportedModel
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer.console import file_progress
from trainer.datasets.batched_prediction import PredictionAucs, predict_all
from trainer.datasets.prediction_input import PredictionInput
from trainer.datasets.predictions_file import PredictionsFile
from trainer.flags import experiment_flags


@dataclasses.dataclass(frozen=True)
class Predictions:
    records: int
    bad_rows: int
    aucs: Mapping[str, BoundedAuc]  # by label, "" for the only one
    without_auc: str  # why there is none


def predict(
    model: ExportedModel, source: PredictionInput, output: str, batch_size: int, overwrite: bool
) -> Predictions:
    """Predicts all records and writes the file: Parquet if it ends in `.parquet`, else CSV."""
    sink = PredictionsFile(output, overwrite)
    sink.open()
    aucs = PredictionAucs()
    records = 0
    finished = False
    try:
        with file_progress.shown(source.total, "records") as progress:
            read = source.columns(batch_size)
            for found, predictions in predict_all(model, read, batch_size):
                sink.write(found.kept, found.labels, predictions)
                aucs.add(found.labels, predictions)
                records += found.count
                progress.add(found.count)
        if not records:
            raise UserError(f"--data={source.data} holds no record")
        sink.finish()
        finished = True
    finally:
        if not finished:
            sink.discard()
    return Predictions(records, source.bad_rows, *aucs.result())


def run() -> None:
    values = flags.FLAGS
    started = time.monotonic()
    objects.check(
        [
            Use("--model", values.model),
            Use("--data", values.data),
            Use("--output", values.output, writes=True),
        ]
    )
    model = ExportedModel.load(values.model)
    task = experiment_flags.task_of(model)
    row_format = task.rows() if task else None
    source = PredictionInput.find(
        values.data, values.format, model, row_format, values.keep, values.max_bad_rows
    )
    if source.has_rows and row_format is None and model.converted:
        sys.stderr.write(
            f"note: rows() of the model's config converts {listed(model.converted)}, and these "
            "rows are taken as converted; give --config to read raw ones\n"
        )
    result = predict(model, source, values.output, values.batch_size, values.overwrite)
    left_out = f", {result.bad_rows} bad rows left out" if result.bad_rows else ""
    sys.stdout.write(
        f"{result.records:,} records predicted{left_out}, {time.monotonic() - started:.1f} s\n"
        f"{_shown(result)}"
        f"predictions: {values.output}\n"
    )


def _shown(result: Predictions) -> str:
    """A line for each AUC, or one that says why there is none."""
    if not result.aucs:
        return f"AUC: {result.without_auc}\n"
    lines = []
    for name, auc in result.aucs.items():
        of_label = f" of {name}" if name else ""
        within = f" (within {auc.bound:.1e} of the exact one)" if auc.bound else ""
        lines.append(f"AUC{of_label}: {auc.value:.7f}{within}\n")
    return "".join(lines)
