"""Puts charts and tables into one file of HTML, which needs nothing else to be shown."""

import itertools
import time
from collections.abc import Callable, Sequence

from tfps.job_dir import JobDir
from tfps.job_dir.report import OUTPUT_LOSS
from tfps.job_dir.size import Size
from tfps.monitoring.events import (
    CheckpointSaved,
    Evaluated,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
    TaskLost,
    TasksMeasured,
)
from tfps.storage import files
from trainer.page.chart import BYTES, COLORS, SECONDS, SHARE, Chart, Mark, Point, Series
from trainer.page.job_record import JobRecord
from trainer.page.tables import tables_of
from trainer.page.templates import html_templates

_RECORDS, _TIME = "records trained", "time since the job began"


def charts_of(jobs: Sequence[JobRecord]) -> list[Chart]:
    """Those of some jobs that have something to show."""
    names = dict.fromkeys(name for job in jobs for name in job.metric_names() if name != "loss")
    found = [_loss(jobs)]
    if len(jobs) == 1:
        # The metric `LogLoss` has a name like them.
        outputs = [x for x in names if x.endswith(OUTPUT_LOSS) and not x.endswith("log_loss")]
        if len(outputs) > 1:
            found.append(_losses_of_outputs(jobs[0], outputs))
            names = dict.fromkeys(name for name in names if name not in outputs)
    else:
        found.append(_loss(jobs, over_time=True))  # which of them is ahead
    found += [*(_metric(jobs, name) for name in names), *_of_scores(jobs), _speed(jobs)]
    if len(jobs) == 1:
        found += [_idle(jobs[0]), _memory(jobs[0]), _staleness(jobs[0])]
    return [chart for chart in found if not chart.is_empty]


def _beside_evaluations(
    jobs: Sequence[JobRecord],
    name: str,
    training: Callable[[JobRecord], list[Point]],
    over_time: bool = False,
) -> list[Series]:
    """What was measured in training, and the metric of that name in evaluations."""
    series = []
    for index, job in enumerate(jobs):
        before = f"{job.name}: " if len(jobs) > 1 else ""
        series.append(Series(f"{before}training", training(job), index))
        color = index if len(jobs) > 1 else 1
        evaluated = job.metric(name, over_time)
        series.append(Series(f"{before}evaluation", evaluated, color, has_dots=True))
    return series


def _loss(jobs: Sequence[JobRecord], over_time: bool = False) -> Chart:
    series = _beside_evaluations(jobs, "loss", lambda job: job.losses(over_time), over_time)
    if over_time:
        return Chart("Loss over time", _TIME, series, x_unit=SECONDS)
    return Chart("Loss", _RECORDS, series)


def _losses_of_outputs(job: JobRecord, names: Sequence[str]) -> Chart:
    series = [
        Series(name.removesuffix(OUTPUT_LOSS), job.metric(name), index, has_dots=True)
        for index, name in enumerate(names)
    ]
    return Chart("Loss of each output", _RECORDS, series)


def _metric(jobs: Sequence[JobRecord], name: str) -> Chart:
    if any(job.progressive(name) for job in jobs):
        series = _beside_evaluations(jobs, name, lambda job: job.progressive(name))
    else:
        series = [
            Series(job.name if len(jobs) > 1 else name, job.metric(name), index, has_dots=True)
            for index, job in enumerate(jobs)
        ]
    return Chart(name, _RECORDS, series)


def _of_scores(jobs: Sequence[JobRecord]) -> list[Chart]:
    """ROC and calibration of yes-or-no labels, with what a useless and a perfect model has."""
    of_names = [(_of_job(job, jobs, x), job.curves[x]) for job in jobs for x in job.curves]
    charts = []
    for curve, title, x, even in (
        ("roc", "ROC: positives found", "share of negatives taken for positives", "by chance"),
        ("calibration", "Calibration: share of positives", "mean prediction", "as predicted"),
    ):
        series = [
            Series(name, _pairs(curves.get(curve, ())), color, has_dots=curve != "roc")
            for color, (name, curves) in enumerate(of_names)
        ]
        most = max((max(point) for each in series for point in each.drawn), default=0.0)
        if most:
            series.append(Series(even, [(0.0, 0.0), (most, most)], len(series)))
            charts.append(Chart(title, x, series))
    return charts


def _of_job(job: JobRecord, jobs: Sequence[JobRecord], metric: str) -> str:
    """What an AUC is of: the label where there are several, and the job likewise."""
    label = metric.removesuffix("auc").rstrip("_")
    return " ".join(filter(None, [job.name if len(jobs) > 1 else "", label])) or "predictions"


def _pairs(points: Sequence[Sequence[float]]) -> list[Point]:
    return [(x, y) for x, y in points]


def _speed(jobs: Sequence[JobRecord]) -> Chart:
    series = [
        Series(job.name if len(jobs) > 1 else "all workers", job.speeds(), index)
        for index, job in enumerate(jobs)
    ]
    marks = _marks(jobs[0]) if len(jobs) == 1 else []
    title = "Records per second"
    return Chart(title, _TIME, series, x_unit=SECONDS, marks=marks, from_zero=True)


def _marks(job: JobRecord) -> list[Mark]:
    """What happened to a job, along its time."""
    found = []
    size: Size | None = None
    for event in job.events:
        if isinstance(event, RunBegan):
            before, size = size, Size(event.workers, event.ps)
            if before not in (None, size):
                found.append(Mark(event.at - job.began, "size", f"from {before} to {size}"))
        elif isinstance(event, TaskLost):
            found.append(Mark(event.at - job.began, "fault", f"{event.task} lost: {event.what}"))
        elif isinstance(event, CheckpointSaved):
            found.append(Mark(event.at - job.began, "checkpoint", f"checkpoint {event.name}"))
        elif isinstance(event, Evaluated):
            text = f"evaluation after epoch {event.epoch}"
            found.append(Mark(event.at - job.began, "evaluation", text))
    return found


def _idle(job: JobRecord) -> Chart:
    """The part of the time between two samples that each worker waited."""
    curves: dict[int, list[tuple[float, float]]] = {}
    for before, sample in itertools.pairwise(job.all(Sampled)):
        if len(before.workers) != len(sample.workers):
            continue
        for worker, (then, now) in enumerate(zip(before.workers, sample.workers, strict=True)):
            new = now.since(then)
            if new.idle_seconds >= 0 and new.idle_share is not None:  # else it has connected again
                curves.setdefault(worker, []).append((sample.at - job.began, new.idle_share))
    name = job.report.cluster.training_task
    series = [Series(name(k), points, k) for k, points in sorted(curves.items())[:COLORS]]
    return Chart(
        "Share of its time that a worker waits",
        _TIME,
        series,
        x_unit=SECONDS,
        y_unit=SHARE,
        from_zero=True,
    )


def _memory(job: JobRecord) -> Chart:
    """Memory of the tasks, the largest ones of many."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for event in job.all(TasksMeasured):
        for name, usage in event.tasks.items():
            curves.setdefault(name, []).append((event.at - job.began, usage.memory_bytes))
    largest = sorted(curves, key=lambda name: max(y for _, y in curves[name]), reverse=True)
    series = [Series(name, curves[name], k) for k, name in enumerate(sorted(largest[:COLORS]))]
    return Chart("Memory", _TIME, series, x_unit=SECONDS, y_unit=BYTES, from_zero=True)


def _staleness(job: JobRecord) -> Chart:
    histogram = job.report.staleness.histogram
    updates = sum(histogram) or 1
    points = [(float(k), count / updates) for k, count in enumerate(histogram)]
    return Chart(
        "Staleness",
        "other updates between pull and push",
        [Series("share of the updates", points, are_steps=True, has_dots=len(points) < 20)],
        y_unit=SHARE,
        from_zero=True,
    )


_TEMPLATE = "page.html.j2"


def page(jobs: Sequence[JobRecord], refresh_seconds: int = 0) -> str:
    """The page of jobs, all of it escaped; browsers load it again unless `refresh_seconds` is 0."""
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    overview, *tables = tables_of(jobs)
    where = ", ".join(job.job_dir for job in jobs)
    return (
        html_templates("trainer.page")
        .get_template(_TEMPLATE)
        .render(
            title=" and ".join(f"{job.report.config} ({job.name})" for job in jobs),
            subtitle=f"{where}; written {written}",
            overview=overview,
            charts=charts_of(jobs),
            tables=tables,
            refresh_seconds=refresh_seconds,
        )
    )


def write(jobs: Sequence[JobRecord], path: str, refresh_seconds: int = 0) -> None:
    files.replace(path, page(jobs, refresh_seconds))


class RunPage:
    """Writes JOB_DIR/report.html at a run's end, from what others have written by then.

    It is to be told of the end, and flushed, after those who keep the job's history.
    """

    name = "the page"

    def __init__(self, job_dir: JobDir):
        self._job_dir = job_dir
        self._is_due = False

    def tell(self, event: RunEvent) -> None:
        self._is_due = self._is_due or isinstance(event, RunEnded)

    def flush(self) -> None:
        """Writes the page, once the run has ended."""
        if self._is_due:
            write([JobRecord.read(self._job_dir)], self._job_dir.page)
            self._is_due = False
