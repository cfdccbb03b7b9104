"""The tables of a page."""

import dataclasses
import time
from collections.abc import Mapping, Sequence

from tfps import byte_size
from tfps.job_dir.report import Report
from tfps.job_dir.size import Size
from tfps.monitoring.events import RunBegan, RunEnded, TableSize, TaskBack, TaskLost, TrainingBegan
from trainer.page.chart import BYTES, SECONDS, SHARE, show
from trainer.page.job_record import JobRecord

_MOST_HAPPENINGS = 200
_MOST_TABLES = 100


@dataclasses.dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]  # none for rows that are led by their names
    rows: Sequence[Sequence[str]]
    note: str = ""


def tables_of(jobs: Sequence[JobRecord]) -> list[Table]:
    """The overview of some jobs, and their other tables that have something to show."""
    found = [_overview(jobs), *([] if len(jobs) == 1 else [_differences(jobs)])]
    if len(jobs) == 1:
        [job] = jobs
        found += [_workers(job.report), _tables(job), _happenings(job), _settings(job)]
    return [table for table in found if table.rows]


def _overview(jobs: Sequence[JobRecord]) -> Table:
    columns = [_figures(job.report) for job in jobs]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, *(column.get(name, "") for column in columns)) for name in names]
    header = ("", *(job.name for job in jobs)) if len(jobs) > 1 else ()
    return Table("Overview", header, rows)


def _figures(report: Report) -> dict[str, str]:
    examples, cluster, saves = report.examples, report.cluster, report.checkpoints
    figures = {
        "status": report.status,
        **_result(report),
        "mode": report.mode,
        "tasks": str(cluster),
        "records trained": f"{examples.trained:,}",
        "datasets" if report.followed else "epochs": str(report.epochs),
        "updates": f"{report.steps:,}",
        "records per second": f"{report.examples_per_second:,.0f}",
        "time": show(report.seconds, SECONDS),
        "staleness, mean": f"{report.staleness.mean:.3g}",
        "tasks lost": ", ".join(f"{n} {job}" for job, n in report.failures_by_job.items()) or "0",
        "repeated records": f"{examples.repeated:,}",
        "bad records": f"{examples.bad:,}",
        "checkpoints": f"{saves.saved}, the last of {byte_size.show(saves.bytes)}",
    }
    versions = report.versions
    figures["versions"] = (
        f"tfps {versions.tfps}, TensorFlow {versions.tensorflow}, Keras {versions.keras}, "
        f"Python {versions.python}"
    )
    return figures


def _result(report: Report) -> dict[str, str]:
    """How a job ended, and what came of it."""
    figures = {}
    if report.error:
        figures["error"] = report.error
    if report.stopped_early:
        figures["stopped early"] = report.stopped_early
    if best := report.best_evaluation:
        value = best.evaluation.metrics[best.metric]
        figures["best evaluation"] = (
            f"{best.metric} {value:.5g} after epoch {best.evaluation.epoch}"
        )
    figures |= {name: f"{value:.5g}" for name, value in report.metrics.items()}
    if report.export:
        figures["exported model"] = report.export
    if report.export_refused:
        figures["no export"] = report.export_refused
    return figures


def _differences(jobs: Sequence[JobRecord]) -> Table:
    """The fields of the configs that are not equal."""
    settings = [dict(job.last_run.settings) if job.last_run else {} for job in jobs]
    names = dict.fromkeys(name for each in settings for name in each)
    rows = [
        (name, *(each.get(name, "") for each in settings))
        for name in names
        if len({each.get(name) for each in settings}) > 1
    ]
    return Table("What differs", ("", *(job.name for job in jobs)), rows)


def _workers(report: Report) -> Table:
    total = sum(share.records for share in report.workers) or 1
    rows = [
        (
            report.cluster.training_task(index),
            f"{share.leases:,}",
            f"{share.records:,}",
            show(share.records / total, SHARE),
            show(share.seconds, SECONDS),
            show(share.idle_share or 0.0, SHARE),
        )
        for index, share in enumerate(report.workers)
    ]
    header = ("", "leases", "records", "share", "trained for", "waited")
    return Table("Workers", header, rows, "Since the chief connected last.")


def _tables(job: JobRecord) -> Table:
    """The tables of the model, the largest first."""
    tables = job.last_run.tables if job.last_run else ()
    total = sum(table.bytes for table in tables)
    touched = job.report.checkpoints.touched_by_table
    rows = [
        (
            table.name,
            f"{table.rows:,}",
            str(table.dim),
            show(table.bytes, BYTES),
            show(table.bytes / total, SHARE),
            *([_touched(table, touched)] if touched else []),
        )
        for table in sorted(tables, key=lambda table: table.bytes, reverse=True)
    ]
    note = f"All {len(tables)} hold {show(total, BYTES)}, the optimizers' slots included."
    if len(rows) > _MOST_TABLES:
        note += f" The {_MOST_TABLES} largest are shown."
    header = ["", "rows", "dim", "bytes with slots", "share"]
    if touched:
        header.append("touched rows")
        note += (
            " Rows are touched that were updated since the full checkpoint before the last "
            "checkpoint; of small tables that is not kept."
        )
    return Table("Tables", header, rows[:_MOST_TABLES], note)


def _touched(table: TableSize, touched: Mapping[str, int]) -> str:
    """How many rows of a table were touched; nothing where that is not known."""
    count = touched.get(table.name)
    return "" if count is None else f"{count:,} ({show(count / table.rows, SHARE)})"


def _happenings(job: JobRecord) -> Table:
    """Faults and what became of them, and where runs began and ended."""
    rows = []
    for event in job.events:
        match event:
            case RunBegan():
                of = f" with {Size(event.workers, event.ps)}" if event.workers else ""
                text = f"a chief began{of}"
            case TrainingBegan(checkpoint=None):
                text = "training began"
            case TrainingBegan():
                text = f"training resumed from {event.examples:,} records"
            case TaskLost():
                text = f"{event.task} was lost: {event.what}"
            case TaskBack():
                text = f"{event.task} was back after {show(event.seconds, SECONDS)}"
            case RunEnded():
                text = f"the run {event.status}" if event.status != "failed" else "the run failed"
            case _:
                continue
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(event.at))
        rows.append((when, show(event.at - job.began, SECONDS), text))
    left = len(rows) - _MOST_HAPPENINGS
    note = f"The {left} before these are in the job's history." if left > 0 else ""
    return Table("What happened", ("when", "after", "what"), rows[-_MOST_HAPPENINGS:], note)


def _settings(job: JobRecord) -> Table:
    run = job.last_run
    if not run:
        return Table("Settings", (), [])
    note = f"Set for the last run: {', '.join(run.overrides)}." if run.overrides else ""
    return Table("Settings", (), list(run.settings.items()), note)
