"""Keras 3 models on parameter servers with stock TensorFlow.

What a config or a notebook needs is found here, and loaded when it is first asked for: launchers,
and tasks that have yet to read their flags, load no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfps.data.array_dataset import write_dataset
    from tfps.data.feature import Feature
    from tfps.data.row_format import Field, RowFormat
    from tfps.experiment.experiment import Data, Experiment, Train
    from tfps.experiment.in_batch_softmax import in_batch_softmax
    from tfps.experiment.metrics import Calibration, LogLoss, NormalizedEntropy, SummedMetric
    from tfps.experiment.mode import AllReduce, Async, Bounded, Local, LocalSGD, Sync
    from tfps.experiment.ranking_metrics import (
        NDCG,
        GroupAUC,
        GroupedMetric,
        HitRate,
        MeanReciprocalRank,
        RecallAtK,
    )
    from tfps.experiment.task import Task
    from tfps.export.job_model import load_model
    from tfps.export.loaded_model import ExportedModel
    from tfps.layers.dynamic_embedding import DynamicEmbedding
    from tfps.layers.embedding import Embedding
    from tfps.layers.rows_of_files import RowsOfFiles, RowsOfIds
    from tfps.model.compiled_task import task_of
    from tfps.optimizers.row_wise_adagrad import RowWiseAdagrad
    from trainer.fit import fit

__version__ = "0.1.0"
__all__ = [
    "NDCG",
    "AllReduce",
    "Async",
    "Bounded",
    "Calibration",
    "Data",
    "DynamicEmbedding",
    "Embedding",
    "Experiment",
    "ExportedModel",
    "Feature",
    "Field",
    "GroupAUC",
    "GroupedMetric",
    "HitRate",
    "Local",
    "LocalSGD",
    "LogLoss",
    "MeanReciprocalRank",
    "NormalizedEntropy",
    "RecallAtK",
    "RowFormat",
    "RowWiseAdagrad",
    "RowsOfFiles",
    "RowsOfIds",
    "SummedMetric",
    "Sync",
    "Task",
    "Train",
    "fit",
    "in_batch_softmax",
    "load_model",
    "task_of",
    "write_dataset",
]
_MODULES = {
    "NDCG": "tfps.experiment.ranking_metrics",
    "AllReduce": "tfps.experiment.mode",
    "Async": "tfps.experiment.mode",
    "Bounded": "tfps.experiment.mode",
    "Calibration": "tfps.experiment.metrics",
    "Data": "tfps.experiment.experiment",
    "DynamicEmbedding": "tfps.layers.dynamic_embedding",
    "Embedding": "tfps.layers.embedding",
    "Experiment": "tfps.experiment.experiment",
    "ExportedModel": "tfps.export.loaded_model",
    "Feature": "tfps.data.feature",
    "Field": "tfps.data.row_format",
    "GroupAUC": "tfps.experiment.ranking_metrics",
    "GroupedMetric": "tfps.experiment.ranking_metrics",
    "HitRate": "tfps.experiment.ranking_metrics",
    "Local": "tfps.experiment.mode",
    "LocalSGD": "tfps.experiment.mode",
    "LogLoss": "tfps.experiment.metrics",
    "MeanReciprocalRank": "tfps.experiment.ranking_metrics",
    "NormalizedEntropy": "tfps.experiment.metrics",
    "RecallAtK": "tfps.experiment.ranking_metrics",
    "RowFormat": "tfps.data.row_format",
    "RowWiseAdagrad": "tfps.optimizers.row_wise_adagrad",
    "RowsOfFiles": "tfps.layers.rows_of_files",
    "RowsOfIds": "tfps.layers.rows_of_files",
    "SummedMetric": "tfps.experiment.metrics",
    "Sync": "tfps.experiment.mode",
    "Task": "tfps.experiment.task",
    "Train": "tfps.experiment.experiment",
    "fit": "trainer.fit",
    "in_batch_softmax": "tfps.experiment.in_batch_softmax",
    "load_model": "tfps.export.job_model",
    "task_of": "tfps.model.compiled_task",
    "write_dataset": "tfps.data.array_dataset",
}


def __getattr__(name: str) -> Any:
    """Loads what a name of `__all__` stands for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names of the front door, loaded or not."""
    return sorted({*globals(), *__all__})
