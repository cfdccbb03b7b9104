"""The charts of a page: of one job in full, of several what can be laid over each other."""

import itertools
from collections.abc import Sequence

from tfps.monitoring.events import CheckpointSaved, Evaluated, Sampled, TaskLost, TasksMeasured
from trainer.page.chart import COLORS, Chart, Mark, Series
from trainer.page.job_record import JobRecord
from trainer.page.scale import BYTES, SECONDS, SHARE

_RECORDS, _TIME = "records trained", "time since the job began"


def charts_of(jobs: Sequence[JobRecord]) -> list[Chart]:
    """Those of some jobs that have something to show."""
    names = dict.fromkeys(name for job in jobs for name in job.metric_names() if name != "loss")
    found = [
        *(_loss(jobs, over_time) for over_time in (False, True)),
        *(_metric(jobs, name, over_time) for name in names for over_time in (False, True)),
        _speed(jobs),
    ]
    if len(jobs) == 1:
        found += [_idle(jobs[0]), _memory(jobs[0]), _staleness(jobs[0])]
    return [chart for chart in found if not chart.is_empty]


def _loss(jobs: Sequence[JobRecord], over_time: bool) -> Chart:
    series = []
    for index, job in enumerate(jobs):
        before = f"{job.name}: " if len(jobs) > 1 else ""
        trained = job.losses_over_time() if over_time else job.losses()
        series.append(Series(f"{before}training", trained, index))
        color = index if len(jobs) > 1 else 1
        evaluated = job.metric_over_time("loss") if over_time else job.metric("loss")
        series.append(Series(f"{before}evaluation", evaluated, color, has_dots=True))
    return _curves("Loss", series, over_time)


def _metric(jobs: Sequence[JobRecord], name: str, over_time: bool) -> Chart:
    series = [
        Series(
            job.name if len(jobs) > 1 else name,
            job.metric_over_time(name) if over_time else job.metric(name),
            index,
            has_dots=True,
        )
        for index, job in enumerate(jobs)
    ]
    return _curves(name, series, over_time)


def _curves(title: str, series: Sequence[Series], over_time: bool) -> Chart:
    """Curves of what is learned, over the records trained or over the time that it took."""
    if over_time:
        return Chart(f"{title} over time", _TIME, series, x_unit=SECONDS)
    return Chart(title, _RECORDS, series)


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
    for event in job.events:
        if isinstance(event, TaskLost):
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
            if new.idle_seconds >= 0 and new.idle_share is not None:  # else it has connected anew
                curves.setdefault(worker, []).append((sample.at - job.began, new.idle_share))
    series = [Series(f"worker {k}", points, k) for k, points in sorted(curves.items())[:COLORS]]
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
