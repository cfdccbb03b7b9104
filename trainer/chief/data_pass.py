"""One pass over a dataset with a checkpoint: `--job=evaluate` and `--job=predict`."""

import dataclasses
import itertools
import logging
import posixpath
import time
from collections.abc import Iterator

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
from tfps.store.parameter_store import ParameterStore
from trainer.chief.engine import Engine, measure, piece_records
from trainer.chief.inputs import DataUse
from trainer.chief.predicted_bytes import predicted_bytes
from trainer.chief.prediction_parts import PartsOf, PredictionParts
from trainer.chief.run_inputs import RunInputs
from trainer.chief.state import ChiefState
from trainer.console.progress_display import ProgressDisplay

PREDICTIONS = "predictions"  # in the job_dir
_LINE_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PassPlan:
    """What a pass does.

    Attributes:
        form: In which form predictions are written; empty for metrics in their place.
        batch_size: Records per call of the model; None for that of the training, which a loss may
            depend on.
    """

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
                export=NO_EXPORT,
                export_if=(),
            ),
            mode=None,
        )

    def kept(self, inputs: RunInputs) -> tuple[Feature, ...]:
        """The features that are copied."""
        features = {feature.name: feature for feature in inputs.experiment.task.features()}
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
        data = inputs.data.of_epoch(0)
        of = PartsOf(
            (self.checkpoint.path, self.checkpoint.saved_at), data.identity, self.keep, self.form
        )
        directory = posixpath.join(inputs.job_dir, PREDICTIONS)
        task = inputs.experiment.task
        labels = [label.name for label in task.labels()] if data.labels else []
        return PredictionParts(directory, of, data, labels)

    def output(self, inputs: RunInputs) -> dict[str, int]:
        """What is written to the job_dir: about how many bytes, by what it is."""
        parts = self.parts(inputs)
        if parts is None:
            return {}
        size = predicted_bytes(inputs, parts, self.kept(inputs), self.form)
        return {"what is predicted": size}

    def prepare(self, inputs: RunInputs, executor: Executor, state: ChiefState) -> "DataPass":
        """Creates the parameters and reads the checkpoint."""
        ps_calls = PsCalls(state.monitor, state.limits.stall_seconds)
        kept, stall_seconds = self.kept(inputs), state.limits.stall_seconds
        engine = ps_calls(
            "creating the parameters",
            lambda: Engine.build(inputs, executor, state.monitor, stall_seconds, kept),
            inputs.layout.ps_bytes,
        )
        ps_calls(
            "reading the checkpoint",
            lambda: _read(self.checkpoint, engine.store),
            inputs.layout.ps_bytes,
        )
        _log.info("with the parameters of %s", self.checkpoint.path)
        return DataPass(self, engine, state)


class DataPass:
    """A pass that is connected to its tasks, and goes on where the one before it was cut off."""

    def __init__(self, plan: PassPlan, engine: Engine, state: ChiefState):
        self._plan, self._engine, self._state = plan, engine, state
        self._data: Manifest = engine.inputs.data.of_epoch(0)
        self._parts = plan.parts(engine.inputs)

    def run(self, display: ProgressDisplay) -> None:
        """Predicts what is missing, and reports.

        Args:
            display: Of what there is none but lines of the log.
        """
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
        self._state.report.predicted(posixpath.dirname(path), self._state.history())

    def _measure(self) -> None:
        results = (result for _, result in self._results(None, 0))
        metrics = measure(self._engine.inputs, results, self._data.records)
        said = ", ".join(f"{name} {value:.6f}" for name, value in metrics.items())
        path, records = self._plan.checkpoint.path, f"{self._data.records:,}"
        _log.info("evaluated %s on %s records: %s", path, records, said)
        self._state.report.measured(metrics, self._state.history())

    def _results(
        self, shards: Iterator[int] | None, done: int
    ) -> Iterator[tuple[Piece, EvaluatedPiece]]:
        """The pieces of some shards with what was predicted of them; tells how far it is."""
        size = piece_records(self._engine.inputs.experiment.train.batch_size)
        pieces, sent = itertools.tee(pieces_of(self._data, size, shards))
        told = time.monotonic()
        for piece, result in zip(pieces, self._engine.coordinator.evaluate(sent), strict=True):
            yield piece, result
            done += piece.records
            self._state.trained(done)
            self._state.go_on_unless_tasks_change()
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
