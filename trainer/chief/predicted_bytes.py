"""How large a dataset's predictions will be, by those of its first records."""

import os
import posixpath
import tempfile
from collections.abc import Sequence

import numpy as np

from tfps.data.feature import Feature
from trainer.chief.inputs import first_values
from trainer.chief.prediction_parts import PredictionParts
from trainer.chief.run_inputs import RunInputs
from trainer.datasets.predictions_file import PredictionsFile


def predicted_bytes(
    inputs: RunInputs, parts: PredictionParts, kept: Sequence[Feature], form: str
) -> int:
    """About how many bytes the parts that are missing will take.

    The first records are written to a file, with predictions that are drawn.
    """
    data, task = inputs.data.of_epoch(0), inputs.experiment.task
    values = {name: value.numpy() for name, value in first_values(task, data).items()}
    records = len(next(iter(values.values())))
    draw = np.random.default_rng(0)
    predictions = {
        name: draw.random([records, *(size or 1 for size in shape)], np.float32)
        for name, shape in inputs.model.prediction_shapes.items()
    }
    labels = {label.name: values[label.name] for label in task.labels()} if data.labels else {}
    with tempfile.TemporaryDirectory() as directory:
        path = posixpath.join(directory, f"predictions.{form}")
        file = PredictionsFile(path, overwrite=False)
        file.open()
        file.write({each.name: values[each.name] for each in kept}, labels, predictions)
        file.finish()
        size = os.path.getsize(path)
    left = sum(data.shards[shard].records for shard in parts.missing())
    return -(-size * left // records)
