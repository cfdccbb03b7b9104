"""Looks at the parameters, and at what a batch would change of them."""

import time

import numpy as np

from tfps.cluster.ps_calls import PsCalls
from tfps.data.record_source import RecordSource, pieces_of
from tfps.monitoring.events import Histogram, ParametersMeasured
from trainer.chief.engine import Engine

_BINS = 30  # as many as Keras's callback draws
_ROWS = 4096  # of a table, at most


def measure(engine: Engine, ps_calls: PsCalls, epoch: int) -> ParametersMeasured:
    """Reads dense parameters and some rows of each table, and has a worker compute gradients.

    The gradients are those of the first batch of the data, of which nothing is pushed.
    """
    model, store = engine.inputs.model, engine.store
    paths = [variable.path for variable in model.dense]

    def read() -> tuple[dict[str, np.ndarray], int]:
        values = dict(zip(paths, store.read_dense(), strict=True))
        for index, table in enumerate(model.tables):
            values[table.name] = store.sample_rows(index, _ROWS)
        return values, store.steps()

    values, steps = ps_calls("reading parameters", read)
    dense, norms = engine.coordinator.gradients(*_first_batch(engine))
    gradients = dict(zip(paths, dense, strict=True)) | norms
    return ParametersMeasured(
        at=time.time(),
        steps=steps,
        epoch=epoch,
        parameters={name: spread(each) for name, each in values.items()},
        gradients={name: spread(each) for name, each in gradients.items()},
    )


def spread(values: np.ndarray) -> Histogram:
    """How values are spread; those that are not finite are counted apart."""
    flat = np.ravel(values).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    counts, edges = np.histogram(finite, _BINS)
    return Histogram(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        norm=float(np.linalg.norm(finite)),
        left_out=len(flat) - len(finite),
    )


def _first_batch(engine: Engine) -> tuple[RecordSource, tuple[int, int, int]]:
    """The source of the first shard that has records, and a lease of its first batch."""
    inputs = engine.inputs
    train = inputs.experiment.train
    piece = next(pieces_of(inputs.data.of_epoch(0), train.batch_size))
    return piece.source, (0, piece.records, train.seed)
