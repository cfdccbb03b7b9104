"""When a run exports its model: at the end, and while it trains, whole or what has changed."""

import concurrent.futures
import logging
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from tfps import byte_size
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.cluster.ps_calls import PsCalls
from tfps.errors import RunError, UserError
from tfps.evaluation.progressive import PROGRESSIVE, Judged
from tfps.experiment.experiment import BEST, NO_EXPORT
from tfps.export.deltas import Delta
from tfps.store.group_layout import TRACKED_BYTES
from trainer.chief.engine import Engine
from trainer.chief.evaluations import JobEvaluations
from trainer.chief.exports import Exported, Exporter, Version
from trainer.chief.run_report import RunReport

_log = logging.getLogger(__name__)


class _Exporting:
    """Exports one thing at a time, in a thread, while workers train."""

    def __init__(self, name: str):
        self._thread = concurrent.futures.ThreadPoolExecutor(1, name)
        self._running: concurrent.futures.Future[Callable[[], None]] | None = None
        self._checkpoint = ""  # the name of the one that is being exported

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def begin(self, checkpoint: Checkpoint, work: Callable[[], Callable[[], None]]) -> None:
        """Begins work, whose result reports it."""
        self._checkpoint = checkpoint.name
        self._running = self._thread.submit(work)

    def poll(self) -> None:
        """Reports the export under way if it is done; one that failed is tried again when due."""
        if self._running is None or not self._running.done():
            return
        running, self._running = self._running, None
        try:
            running.result()()
        except (OSError, RunError, UserError, tf.errors.OpError) as error:
            _log.warning("the model of %s is not exported: %s", self._checkpoint, error)

    def finish(self) -> None:
        """Waits for the export under way, if any."""
        if self._running:
            concurrent.futures.wait([self._running])


class RunExports:
    """Exports checkpoints of a run, one version at a time, and deltas of the one before meanwhile.

    While workers train, this process reads a checkpoint's files and writes the model itself; at the
    end the ps write theirs.
    """

    def __init__(
        self, engine: Engine, evaluations: JobEvaluations, report: RunReport, ps_calls: PsCalls
    ):
        self._engine = engine
        self._evaluations = evaluations
        self._report = report
        self._ps_calls = ps_calls
        self._exporter = Exporter(engine.inputs)
        self._train = engine.inputs.settings.experiment.train
        self._versions, self._deltas = _Exporting("export"), _Exporting("deltas")
        self._newest: Version | None = None  # that deltas are made of
        self._last = time.monotonic()  # when the last version was begun, or the run
        self._needs_version = False  # since there is none that a delta can be made of
        self._is_refused = False  # the last version, by `train.export_if`
        self._judged: Judged | None = None  # by the last version

    @property
    def wants_full(self) -> bool:
        """Whether the next checkpoint should be a full one, for a version that gets deltas."""
        return self._train.export_deltas and not self._versions.is_busy and self._is_due()

    @property
    def delta_base(self) -> str | None:
        """The full checkpoint since which an increment has to hold all changes for a delta."""
        return self._newest.base if self._newest else None

    def saved(self, checkpoint: Checkpoint) -> None:
        """Begins to export a checkpoint, if a version is due, or as a delta of the newest one."""
        if not self._train.export_seconds:
            return
        can_begin = not self._versions.is_busy
        if self._train.export_deltas:
            self._newest = version = self._exporter.newest()
            if can_begin and self._is_due():
                pass  # a version comes before a delta
            elif version and _fits(checkpoint, version):
                self._begin_delta(version, checkpoint)
            elif can_begin and not self._is_refused:
                # The next checkpoint is a full one if this is not.
                self._needs_version = True
                can_begin = checkpoint.increment is None
        if can_begin and self._is_due():
            self._begin_version(checkpoint)

    def poll(self) -> None:
        """Reports exports under way that are done; one that failed is tried again when due."""
        self._deltas.poll()
        self._versions.poll()

    def finish(self, last: Checkpoint) -> None:
        """Exports the model that the experiment wants, or none; `last` is what the ps hold."""
        if self._train.export == NO_EXPORT:
            return
        if self._deltas.is_busy or self._versions.is_busy:
            self._ps_calls(
                "exporting the model",
                self._await_all,
                self._engine.inputs.plan.layout.ps_bytes,
            )
            self.poll()
        checkpoint = (self._best() or last) if self._train.export == BEST else last
        if path := self._exporter.exported(checkpoint.name):
            _log.info("%s has the model of %s: delete it to export again", path, checkpoint.name)
            self._report.update(export=path, export_refused=None)
            return
        metrics = self._metrics_of(checkpoint)
        if checkpoint.name == last.name:
            exported = self._ps_calls(
                "exporting the model",
                lambda: self._exporter.export_store(
                    self._engine.store, checkpoint.name, metrics, checkpoint.base.name
                ),
                self._engine.inputs.plan.layout.ps_bytes,
            )
        else:
            exported = self._exporter.export_saved(checkpoint, metrics)
        self._exported(checkpoint, exported)

    def _await_all(self) -> None:
        self._deltas.finish()
        self._versions.finish()

    def _is_due(self) -> bool:
        since = time.monotonic() - self._last
        return self._needs_version or 0 < self._train.export_seconds <= since

    def _begin_version(self, checkpoint: Checkpoint) -> None:
        self._last, self._needs_version = time.monotonic(), False
        metrics = self._metrics_of(checkpoint)
        self._judged = self._engine.coordinator.meter.judged_so_far
        self._versions.begin(checkpoint, lambda: self._export(checkpoint, metrics))

    def _begin_delta(self, version: Version, checkpoint: Checkpoint) -> None:
        """Begins a delta, unless one is being written."""
        if self._deltas.is_busy:
            return
        metrics = self._metrics_of(checkpoint)
        self._deltas.begin(checkpoint, lambda: self._export_delta(version, checkpoint, metrics))

    def _export(self, checkpoint: Checkpoint, metrics: Mapping[str, float]) -> Callable[[], None]:
        exported = self._exporter.export_saved(checkpoint, metrics)
        return lambda: self._exported(checkpoint, exported)

    def _export_delta(
        self, version: Version, checkpoint: Checkpoint, metrics: Mapping[str, float]
    ) -> Callable[[], None]:
        found = self._exporter.export_delta(version, checkpoint, metrics)
        return lambda: _tell_delta(*found) if found else None

    def _exported(self, checkpoint: Checkpoint, exported: Exported) -> None:
        self._is_refused = exported.refused is not None
        if not self._is_refused:
            self._newest = None  # until the next checkpoint looks for it
        _log.info("exported the model of %s to %s", checkpoint.name, exported.path)
        self._report.update(export=exported.newest, export_refused=exported.refused)

    def _metrics_of(self, checkpoint: Checkpoint) -> dict[str, float]:
        """What an evaluation measured of it, and what was judged since the last version."""
        judged = self._engine.coordinator.meter.judged_so_far
        since = judged.since(self._judged) if self._judged else judged
        progressive = {f"{PROGRESSIVE}{name}": value for name, value in since.metrics().items()}
        return {**(self._evaluations.metrics_of(checkpoint) or {}), **progressive}

    def _best(self) -> Checkpoint | None:
        """The checkpoint of the best evaluation; None, which is told, if there is no such."""
        found = self._evaluations.best()
        if found is None:
            name = self._engine.inputs.plan.best_metric.name
            _log.warning("no evaluation has a number for %s: the last checkpoint is exported", name)
        return found


def _fits(checkpoint: Checkpoint, version: Version) -> bool:
    """Whether a checkpoint holds whatever has changed since a version."""
    increment = checkpoint.increment
    if version.base in (checkpoint.base.name, increment and increment.since.name):
        return True
    # Of a model so small that every checkpoint is full, and no version is needed for that.
    return checkpoint.increment is None and checkpoint.size < TRACKED_BYTES


def _tell_delta(path: str, delta: Delta) -> None:
    size = byte_size.show(delta.bytes)
    _log.info("exported %s rows of %s to %s: %s", f"{delta.rows:,}", delta.checkpoint, path, size)
