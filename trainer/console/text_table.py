"""Lays out tables as text, no wider than the terminal that they are written to."""

import io
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfps.job_dir.report import BestEvaluation, Report, WorkerShare

_UNBOUNDED = 100_000  # columns where no terminal is: a line is a line
_BETWEEN = (0, 2, 0, 0)


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    """The lines of a table whose columns are as wide as their widest cell."""
    table = Table(box=None, padding=_BETWEEN, pad_edge=False)
    for number, name in enumerate(header):
        justify = "right" if number in right else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    return _lines(table)


def named_texts(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """The lines of texts behind their names, which take at least `width`."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    return _lines(grid)


def _lines(table: Table) -> list[str]:
    file = io.StringIO()
    columns = Console().width if sys.stdout.isatty() else _UNBOUNDED
    console = Console(
        file=file, width=columns, color_system=None, legacy_windows=False, force_jupyter=False
    )
    console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def job_summary(job_dir: str, report: Report) -> list[str]:
    examples, cluster = report.examples, report.cluster
    passes = "datasets" if report.followed else "epochs"
    rows = [
        ("job", f"{report.config}, {report.status} ({report.mode} mode, {cluster})"),
        (
            "trained",
            f"{examples.trained:,} records in {report.epochs} {passes} and {report.steps:,} steps; "
            f"{examples.skipped} skipped, {examples.repeated} repeated, {examples.bad} bad",
        ),
        ("speed", _speed(report)),
    ]
    if report.followed:
        rows += [("not taken", note) for note in report.followed.notes]
    if report.init_from:
        rows.append(("began with", report.init_from))
    if len(report.workers) > 1:
        rows.append(("workers", _shares(report.workers)))
    metrics = dict(report.metrics)
    if "auc" in metrics:
        best = report.best_auc
        limit = f" (the planted signal allows {best:.4f})" if best is not None else ""
        rows.append(("AUC", f"{metrics.pop('auc'):.4f}{limit}"))
    rows += [(name, f"{value:.4f}") for name, value in metrics.items()]
    if len(report.evaluations) > 1 and report.best_evaluation:
        rows.append(("best", _best(report.best_evaluation, len(report.evaluations))))
    if report.stopped_early:
        rows.append(("stopped", f"early: {report.stopped_early}"))
    rows += [("lost", f"{failure.task}: {failure.what}") for failure in report.failures]
    paths = {
        "checkpoint": report.checkpoint,
        "export": report.export,
        "refused": report.export_refused,
        "best model": report.export_best,
    }
    rows += [(name, path) for name, path in paths.items() if path]
    rows.append(("report", f"{job_dir}/report.json"))
    return named_texts(rows, 10)


def _best(best: BestEvaluation, count: int) -> str:
    """What the best evaluation measured, and when it was."""
    found = best.evaluation
    values = ", ".join(f"{name} {value:.4f}" for name, value in found.metrics.items())
    return (
        f"of {count} evaluations by {best.metric}: {values} (epoch {found.epoch}, "
        f"{found.steps:,} steps)"
    )


def _speed(report: Report) -> str:
    speed = f"{report.examples_per_second:,.0f} examples/s"
    if whole := report.examples_per_second_with_pauses:  # older reports have none
        speed += f", {whole:,.0f} with what lies between epochs"
    return f"{speed}, {report.seconds:.0f} s in all"


def _shares(workers: Sequence[WorkerShare]) -> str:
    """How evenly the workers trained what this run did."""
    records = [worker.records for worker in workers]
    idle = WorkerShare.together(workers).idle_share or 0.0
    total = max(1, sum(records))
    return (
        f"{min(records) / total:.1%} to {max(records) / total:.1%} of the records each, "
        f"idle {idle:.1%} of the time between leases"
    )
