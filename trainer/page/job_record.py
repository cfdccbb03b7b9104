"""What there is to show of a job: its report, and what its history tells."""

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

from tfps.errors import UserError
from tfps.evaluation.history import Evaluations
from tfps.job_dir import JobDir
from tfps.job_dir import report as report_file
from tfps.job_dir.report import Report
from tfps.monitoring import recorder
from tfps.monitoring.events import (
    CheckpointSaved,
    Evaluated,
    RunBegan,
    RunEvent,
    Sampled,
    TrainingBegan,
)
from trainer.page.chart import Point

_Event = TypeVar("_Event", bound=RunEvent)


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """A job as it is kept in its directory."""

    job_dir: JobDir
    report: Report
    events: Sequence[RunEvent]  # in order
    # Points of ROC and calibration by metric and curve, of the best evaluation, else of the last.
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = dataclasses.field(
        default_factory=dict
    )

    @classmethod
    def read(cls, path: str) -> Self:
        """What is in a job's directory."""
        job_dir = JobDir(path)
        found = report_file.load(job_dir)
        if found is None:
            raise UserError(f"{job_dir} holds no report.json: no job ran there")
        return cls(job_dir, found, recorder.read(job_dir), _curves(job_dir, found))

    @property
    def name(self) -> str:
        """What tells it from others: the last part of its path."""
        return self.job_dir.name or self.job_dir

    def all(self, kind: type[_Event]) -> list[_Event]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def began(self) -> float:
        """When the first chief began, seconds since 1970."""
        return self.events[0].at if self.events else 0.0

    @property
    def last_run(self) -> RunBegan | None:
        return next(reversed(self.all(RunBegan)), None)

    def kept_samples(self) -> list[Sampled]:
        """The samples of what the parameters hold: without what a run has given up."""
        kept: list[Sampled] = []
        for event in self.events:
            if isinstance(event, TrainingBegan):
                at = bisect.bisect_right(kept, event.examples, key=lambda x: x.examples)
                del kept[at:]
            elif isinstance(event, Sampled):
                kept.append(event)
        return kept

    def losses(self, over_time: bool = False) -> list[Point]:
        """Records trained, or seconds of the job, and the mean loss since the sample before."""
        if over_time:
            return [(x.at - self.began, x.loss) for x in self.all(Sampled) if x.loss is not None]
        return [(x.examples, x.loss) for x in self.kept_samples() if x.loss is not None]

    def metric(self, name: str, over_time: bool = False) -> list[Point]:
        """Records trained, or seconds of the job, and a metric of the evaluation by then."""
        if over_time:
            made = [event for event in self.all(Evaluated) if name in event.metrics]
            return [(event.at - self.began, event.metrics[name]) for event in made]
        examples = {event.steps: event.examples for event in self.all(CheckpointSaved)}
        values = {event.steps: event.metrics.get(name) for event in self.all(Evaluated)}
        return [
            (examples[steps], value)
            for steps, value in sorted(values.items())
            if value is not None and steps in examples
        ]

    def progressive(self, name: str) -> list[Point]:
        """Records trained, and a metric of those since the sample before as they were predicted.

        Names may differ in capitals: a compiled model's AUC has the name that it was given.
        """
        return [
            (sample.examples, value)
            for sample in self.kept_samples()
            for known, value in sample.judged.items()
            if known.lower() == name.lower()
        ]

    def metric_names(self) -> list[str]:
        """Names of the metrics, the loss first."""
        names = {name for event in self.all(Evaluated) for name in event.metrics}
        known = {name.lower() for name in names}
        judged = {name for event in self.all(Sampled) for name in event.judged}
        names |= {name for name in judged if name not in known}
        return sorted(names, key=lambda name: (name != "loss", name))

    def speeds(self) -> list[Point]:
        """Seconds since the job began, and records per second."""
        return [(x.at - self.began, x.examples_per_second) for x in self.all(Sampled)]


def _curves(
    job_dir: JobDir, report: Report
) -> Mapping[str, Mapping[str, Sequence[Sequence[float]]]]:
    evaluations = Evaluations(job_dir).newest_first()
    last = next(evaluations, None)
    if last is None or report.best_evaluation is None:
        return last.curves if last else {}
    best = report.best_evaluation.evaluation
    for each in itertools.chain([last], evaluations):
        if (each.epoch, each.steps) == (best.epoch, best.steps):
            return each.curves
    return last.curves
