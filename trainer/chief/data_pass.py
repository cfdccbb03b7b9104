"""One pass over a dataset with a checkpoint: `--job=evaluate` and `--job=predict`."""

import dataclasses
import itertools
import json
import logging
import os
import posixpath
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.checkpoint.restore import read_whole, refuse_misfit
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_source import Piece, pieces_of
from tfps.errors import UserError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.experiment.experiment import NO_EXPORT, Experiment
from tfps.experiment.task import Task
from tfps.job_dir.report import FINISHED
from tfps.storage import files
from tfps.storage.paths import canonical
from tfps.store.parameter_store import ParameterStore
from trainer.chief.engine import Engine, measure, piece_records
from trainer.chief.run_inputs import DataUse, RunInputs, first_values
from trainer.chief.state import ChiefState
from trainer.console.terminal import ProgressDisplay
from trainer.datasets.predictions_file import PredictionsFile

MANIFEST = "manifest.json"
_JOB = "job.json"  # what the parts are of, there before the first of them
_FORMAT = 1
_ASKED_AT_ONCE = 16  # parts that an earlier process wrote, for their sizes
_LINE_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PartsOf:
    """What predictions are of: parts of another job are not taken for its own."""

    checkpoint: tuple[str, float]
    data: dict[str, Any]
    keep: tuple[str, ...]
    form: str

    def to_json(self) -> dict[str, Any]:
        path, saved_at = self.checkpoint
        own = {"checkpoint": [canonical(path), saved_at]}  # however it was named
        return {"format": _FORMAT, **dataclasses.asdict(self), **own}


class PredictionParts:
    """A directory with predictions per shard, named once whole, so a rerun adds the rest."""

    def __init__(self, directory: str, of: PartsOf, data: Manifest, labels: Sequence[str]):
        self._directory = directory
        self._of = of
        self._data = data
        self._labels = labels
        self._file: PredictionsFile | None = None
        self._bytes: dict[int, int] = {}  # of the parts that this process has written, by shard
        self._begin()

    def missing(self) -> list[int]:
        """Positions of the shards whose parts are not there."""
        found = set(files.names(self._directory))
        shards = enumerate(self._data.shards)
        return [k for k, shard in shards if shard.records and self.name(k) not in found]

    def name(self, shard: int) -> str:
        """Name of the part of a shard, by its position."""
        return f"part-{shard:05d}-of-{len(self._data.shards):05d}.{self._of.form}"

    def write(self, shard: int, result: EvaluatedPiece, is_last: bool) -> None:
        """Appends records to their shard's part, which `is_last` ends before another begins."""
        if self._file is None:
            path = posixpath.join(self._directory, self.name(shard))
            file = PredictionsFile(path, overwrite=True)
            file.open()
            self._file = file
        kept = {name: result.labels[name] for name in self._of.keep}
        labels = {name: result.labels[name] for name in self._labels}
        self._file.write(kept, labels, result.predictions)
        if is_last:
            self._bytes[shard] = self._file.finish()
            self._file = None

    def discard(self) -> None:
        """Removes the part that is not whole, if there is one."""
        if self._file is not None:
            self._file.discard()
            self._file = None

    def finish(self) -> str:
        """Writes the manifest, once all parts are there; returns its path."""
        shards = [k for k, shard in enumerate(self._data.shards) if shard.records]
        found = [k for k in shards if k not in self._bytes]
        with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
            sizes = self._bytes | dict(zip(found, pool.map(self._size, found), strict=True))
        parts = [
            {"file": self.name(k), "records": self._data.shards[k].records, "bytes": sizes[k]}
            for k in shards
        ]
        path = posixpath.join(self._directory, MANIFEST)
        content = {**self._of.to_json(), "records": self._data.records, "parts": parts}
        files.write(path, _json(content))
        return path

    def _size(self, shard: int) -> int:
        return files.size(posixpath.join(self._directory, self.name(shard)))

    def _begin(self) -> None:
        path = posixpath.join(self._directory, _JOB)
        files.make_directories(self._directory)
        wanted = json.loads(_json(self._of.to_json()))
        try:
            found = json.loads(files.read(path))
        except FileNotFoundError:
            files.write(path, _json(self._of.to_json()))
            return
        except json.JSONDecodeError:
            found = None
        if found != wanted:
            raise UserError(
                f"{self._directory} has predictions of another checkpoint, of other data or in "
                "another form; delete them, or name another --job_dir"
            )


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def predicted_bytes(
    inputs: RunInputs, parts: PredictionParts, kept: Sequence[Feature], form: str
) -> int:
    """About how many bytes the missing parts will take, from a file of drawn predictions."""
    settings, datasets, plan = inputs
    task, data = settings.experiment.task, datasets.train.of_epoch(0)
    values = {name: value.numpy() for name, value in first_values(task, data).items()}
    records = len(next(iter(values.values())))
    draw = np.random.default_rng(0)
    predictions = {
        name: draw.random([records, *(size or 1 for size in shape)], np.float32)
        for name, shape in plan.model.prediction_shapes.items()
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


@dataclasses.dataclass(frozen=True)
class PassPlan:
    """What a pass does: metrics for "" as `form`; `batch_size` None for the training's."""

    checkpoint: Checkpoint
    form: str = ""
    keep: tuple[str, ...] = ()
    batch_size: int | None = None

    @property
    def use(self) -> DataUse:
        """What the data is for: labels are needed for metrics alone."""
        return DataUse("--data", needs_labels=not self.form)

    def experiment(self, trained: Experiment, data: str) -> Experiment:
        """An experiment of which one pass over a dataset can be made."""
        return dataclasses.replace(
            trained,
            data=dataclasses.replace(
                trained.data, train=data, eval="", max_bad_records=0, negatives=0
            ),
            train=dataclasses.replace(
                trained.train,
                batch_size=self.batch_size or trained.train.batch_size,
                epochs=1,
                early_stopping=0,
                drop_remainder=False,
                init_from="",
                init_layers=(),
                checkpoint_in_background=False,
                export=NO_EXPORT,
                export_if=(),
                export_seconds=0.0,
                export_deltas=False,
            ),
            mode=None,
            callbacks=None,
        )

    def kept(self, task: Task) -> tuple[Feature, ...]:
        features = {feature.name: feature for feature in task.features()}
        for name in self.keep:
            if name not in features:
                raise UserError(
                    f"--keep={name}: the task has no such feature; it has {', '.join(features)}"
                )
            if features[name].is_ragged:
                raise UserError(
                    f"--keep={name}: it varies in length, and cannot be copied; leave it out"
                )
        return tuple(features[name] for name in self.keep)

    def parts(self, inputs: RunInputs) -> PredictionParts | None:
        """Where predictions go; None for metrics in their place."""
        if not self.form:
            return None
        data = inputs.data.train.of_epoch(0)
        of = PartsOf(
            (self.checkpoint.path, self.checkpoint.saved_at), data.identity, self.keep, self.form
        )
        settings = inputs.settings
        task = settings.experiment.task
        labels = [label.name for label in task.labels()] if data.labels else []
        return PredictionParts(settings.job_dir.predictions, of, data, labels)

    def output(self, inputs: RunInputs) -> dict[str, int]:
        """What is written to the job_dir: about how many bytes, by what it is."""
        parts = self.parts(inputs)
        if parts is None:
            return {}
        kept = self.kept(inputs.settings.experiment.task)
        size = predicted_bytes(inputs, parts, kept, self.form)
        return {"what is predicted": size}

    def prepare(self, inputs: RunInputs, executor: Executor, state: ChiefState) -> "DataPass":
        """Creates the parameters and reads the checkpoint."""
        kept = self.kept(inputs.settings.experiment.task)
        stall_seconds = state.limits.stall_seconds
        ps_calls = PsCalls(state.monitor, stall_seconds)
        engine = ps_calls(
            "creating the parameters",
            lambda: Engine.build(inputs, executor, state.monitor, stall_seconds, kept),
            inputs.plan.layout.ps_bytes,
        )
        ps_calls(
            "reading the checkpoint",
            lambda: _read(self.checkpoint, engine.store),
            inputs.plan.layout.ps_bytes,
        )
        _log.info("with the parameters of %s", self.checkpoint.path)
        return DataPass(self, engine, state)


class DataPass:
    """A pass that is connected to its tasks, and continues where the one before it was cut off."""

    def __init__(self, plan: PassPlan, engine: Engine, state: ChiefState):
        self._plan, self._engine, self._state = plan, engine, state
        self._data: Manifest = engine.inputs.data.train.of_epoch(0)
        self._parts = plan.parts(engine.inputs)

    def run(self, display: ProgressDisplay) -> None:
        """Predicts what is missing, and reports."""
        try:
            if self._parts:
                self._predict(self._parts)
            else:
                self._measure()
        finally:
            if self._parts:
                self._parts.discard()
            self._engine.stop()

    def _predict(self, parts: PredictionParts) -> None:
        missing = parts.missing()
        left = sum(self._data.shards[k].records for k in missing)
        if done := self._data.records - left:
            _log.info("%s of %s records are predicted already", f"{done:,}", f"{left + done:,}")
        for piece, result in self._results(iter(missing), done):
            parts.write(piece.shard, result, piece.is_last)
        path = parts.finish()
        _log.info("%s records predicted: %s", f"{self._data.records:,}", path)
        self._state.update_report(status=FINISHED, predictions=posixpath.dirname(path))

    def _measure(self) -> None:
        results = (result for _, result in self._results(None, 0))
        metrics = measure(self._engine.inputs, results, self._data.records).metrics
        said = ", ".join(f"{name} {value:.6f}" for name, value in metrics.items())
        path, records = self._plan.checkpoint.path, f"{self._data.records:,}"
        _log.info("evaluated %s on %s records: %s", path, records, said)
        self._state.update_report(status=FINISHED, metrics=metrics)

    def _results(
        self, shards: Iterator[int] | None, done: int
    ) -> Iterator[tuple[Piece, EvaluatedPiece]]:
        """The pieces of some shards with what was predicted of them; tells how far it is."""
        size = piece_records(self._engine.inputs.settings.experiment.train.batch_size)
        pieces, sent = itertools.tee(pieces_of(self._data, size, shards))
        told = time.monotonic()
        for piece, result in zip(pieces, self._engine.coordinator.evaluate(sent), strict=True):
            yield piece, result
            done += piece.records
            self._state.trained(done)
            if done < self._data.records:
                self._state.go_on_unless_tasks_change(keeps=self._parts is not None)
            if time.monotonic() - told > _LINE_SECONDS:
                told = time.monotonic()
                _log.info("%s of %s records", f"{done:,}", f"{self._data.records:,}")


def _read(checkpoint: Checkpoint, store: ParameterStore) -> None:
    refuse_misfit(checkpoint, store.signature(), store.layout.numberings)
    try:
        read_whole(checkpoint, store)
    except DamagedCheckpointError as damage:
        raise UserError(
            f"checkpoint {checkpoint.path} is damaged: {damage}; name another with --checkpoint"
        ) from None
