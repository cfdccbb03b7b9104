"""The curves of a run for TensorBoard, under the names that Keras's own callback gives them.

`train` and `validation` are the directories of `keras.callbacks.TensorBoard`, with its tags: those
that begin with `epoch_` by epoch, `batch_` and `evaluation_…_vs_iterations` by the number of
updates. What else tfps knows has tags that begin with `tfps/`. Beside them lies what was set for
the run, for TensorBoard to compare runs by.
"""

import functools
import posixpath
from collections.abc import Mapping

from tfps.job_dir.report_fields import FINISHED, WorkerShare
from tfps.job_dir.task_name import TaskName
from tfps.job_dir.task_usage import TaskUsage
from tfps.monitoring import hparams
from tfps.monitoring.event_file import EventFile
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    ParametersMeasured,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)

TRAIN, VALIDATION = "train", "validation"


class TensorBoardLog:
    """Writes what happens in a run as TensorBoard's events.

    Where a run goes back to a checkpoint, TensorBoard drops what was drawn behind it; the curve
    `tfps/went_back_examples` says how many records are trained again. What goes by epochs is
    written once the epoch is in a checkpoint.
    """

    name = "the curves for TensorBoard"

    def __init__(self, directory: str, began: float):
        """Writes nothing yet.

        Args:
            began: When the chief began, seconds since 1970.
        """
        self._run = EventFile(directory, began)
        self._train = EventFile(posixpath.join(directory, TRAIN), began)
        self._validation = EventFile(posixpath.join(directory, VALIDATION), began)
        self._last: Sampled | None = None
        self._lost: dict[str, int] = {}  # by job
        self._steps: dict[str, int] = {}  # of the last point of each curve
        self._usages: dict[str, TaskUsage] = {}  # by name of the task

    @functools.singledispatchmethod
    def tell(self, event: RunEvent) -> None:
        """Adds what happened to the curves; not all that happens is in one."""

    @tell.register
    def _(self, event: RunBegan) -> None:
        settings = dict(override.split("=", 1) for override in event.overrides)
        start = hparams.session_start(settings, event.at)
        self._run.note(hparams.START_TAG, hparams.PLUGIN, start, event.at)

    @tell.register
    def _(self, event: RunEnded) -> None:
        end = hparams.session_end(event.status == FINISHED, event.at)
        self._run.note(hparams.END_TAG, hparams.PLUGIN, end, event.at)

    @tell.register
    def _(self, event: TrainingBegan) -> None:
        for file in (self._train, self._validation):
            file.begin(event.steps + 1, event.at)
        self._steps = {tag: min(step, event.steps) for tag, step in self._steps.items()}
        if self._last and self._last.examples > event.examples:
            again = self._last.examples - event.examples
            values = {"tfps/went_back_examples": float(again)}
            self._draw(values, event.steps + 1, event.at)
        self._last = None

    @tell.register
    def _(self, event: Sampled) -> None:
        values = {
            "tfps/examples_per_second": event.examples_per_second,
            "tfps/repeated_records": float(event.repeated),
            "tfps/bad_records": float(event.bad),
        }
        if event.loss is not None:
            values["batch_loss"] = event.loss
        before = self._last
        if before and before.steps == event.steps:
            return  # there is a point
        if before:
            seconds = max(event.at - before.at, 1e-3)
            values["batch_steps_per_second"] = (event.steps - before.steps) / seconds
            values |= _idle(before.workers, event.workers)
        values |= {f"tfps/lost_{job}": float(count) for job, count in self._lost.items()}
        self._draw(values, event.steps, event.at)
        self._last = event

    @tell.register
    def _(self, event: TasksMeasured) -> None:
        largest: dict[str, float] = {}
        for name, usage in event.tasks.items():
            tag = f"tfps/memory_bytes_{TaskName.parse(name).job}"
            largest[tag] = max(largest.get(tag, 0.0), float(usage.memory_bytes))
        largest |= self._wire(event.tasks)
        if self._last:
            self._draw(largest, self._last.steps, event.at)

    def _wire(self, usages: Mapping[str, TaskUsage]) -> dict[str, float]:
        """What all ps together have sent and received per second, since their reports before."""
        rates: dict[str, float] = {}
        for name, now in usages.items():
            before, self._usages[name] = self._usages.get(name), now
            if TaskName.parse(name).job != "ps" or not before or now.at <= before.at:
                continue
            for what in ("sent", "received"):
                more = getattr(now, f"{what}_bytes") - getattr(before, f"{what}_bytes")
                if more >= 0:  # else it has begun again
                    tag = f"tfps/ps_{what}_bytes_per_second"
                    rates[tag] = rates.get(tag, 0.0) + more / (now.at - before.at)
        return rates

    @tell.register
    def _(self, event: ParametersMeasured) -> None:
        spreads = {f"{name}/histogram": each for name, each in event.parameters.items()}
        spreads |= {f"{name}/gradient/histogram": each for name, each in event.gradients.items()}
        norms = {f"tfps/norm/{name}": each.norm for name, each in event.parameters.items()}
        norms |= {f"tfps/gradient_norm/{name}": x.norm for name, x in event.gradients.items()}
        self._train.histograms(spreads, event.steps, event.at)
        self._draw(norms, event.steps, event.at)

    @tell.register
    def _(self, event: CheckpointSaved) -> None:
        saves = event.saves
        values = {
            "tfps/checkpoint_write_seconds": saves.write_seconds,
            "tfps/checkpoint_stopped_seconds": saves.stopped_seconds,
            "tfps/checkpoint_bytes": float(saves.bytes),
        }
        if event.staleness.histogram:  # else nothing was pushed
            values["tfps/staleness"] = event.staleness.mean
        if saves.touched_by_table:
            values["tfps/touched_rows"] = float(saves.touched_rows)
        self._draw(values, event.steps, event.at)

    @tell.register
    def _(self, event: EpochTrained) -> None:
        values = {"epoch_loss": event.loss}
        if event.learning_rate is not None:
            values["epoch_learning_rate"] = event.learning_rate
        if event.steps_per_second is not None:
            values["epoch_steps_per_second"] = event.steps_per_second
        self._train.scalars(values, event.epoch, event.at)

    @tell.register
    def _(self, event: Evaluated) -> None:
        by_steps = {f"evaluation_{name}_vs_iterations": x for name, x in event.metrics.items()}
        self._validation.scalars(by_steps, event.steps, event.at)
        if event.has_ended_epoch:
            by_epoch = {f"epoch_{name}": x for name, x in event.metrics.items()}
            self._validation.scalars(by_epoch, event.epoch - 1, event.at)

    @tell.register
    def _(self, event: TaskLost) -> None:
        job = TaskName.parse(event.task).job
        self._lost[job] = self._lost.get(job, 0) + 1

    def flush(self) -> None:
        """Brings the curves to where TensorBoard finds them."""
        self._run.flush()
        self._train.flush()
        self._validation.flush()

    def _draw(self, values: Mapping[str, float], steps: int, at: float) -> None:
        """Adds points to curves of the training; a curve that has one there stays as it is."""
        new = {tag: value for tag, value in values.items() if self._steps.get(tag, -1) < steps}
        self._steps |= dict.fromkeys(new, steps)
        if new:
            self._train.scalars(new, steps, at)


def _idle(before: tuple[WorkerShare, ...], now: tuple[WorkerShare, ...]) -> dict[str, float]:
    """The part of their time that workers waited for leases since a sample."""
    if len(before) != len(now):
        return {}
    new = WorkerShare.together(x.since(y) for x, y in zip(now, before, strict=True))
    return {} if new.idle_share is None else {"tfps/idle_share": new.idle_share}
