"""Tells in a few lines what a job did: `python -m trainer.summary --job_dir=…`."""

from typing import Any

from absl import flags

from tfps.errors import UserError
from trainer import entry

_FLAGS = flags.FLAGS
_PATHS = {"checkpoint": "checkpoint", "export": "export", "export_best": "best model"}
flags.DEFINE_string("job_dir", None, "The job's directory, local or gs://.")


def main() -> None:
    """Prints the summary of a job's report."""
    if not _FLAGS.job_dir:
        raise UserError("--job_dir is missing")
    from trainer.console import quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip
    from tfps.job_dir import report
    from tfps.storage import preflight

    preflight.check([preflight.Use("--job_dir", _FLAGS.job_dir)])
    fields = report.read(_FLAGS.job_dir)
    if fields is None:
        raise UserError(f"--job_dir={_FLAGS.job_dir} holds no report.json: no job ran there")
    print("\n".join(lines(_FLAGS.job_dir, fields)))  # noqa: T201 (what this command is for)


def lines(job_dir: str, fields: dict[str, Any]) -> list[str]:
    """The summary of a report's fields."""
    examples, cluster = fields["examples"], fields["cluster"]
    tasks = f"{cluster['workers']} workers, {cluster['ps']} ps" if cluster["ps"] else "one process"
    rows = [
        ("job", f"{fields['config']}, {fields['status']} ({fields['mode']} mode, {tasks})"),
        (
            "trained",
            f"{examples['trained']:,} records in {fields['epochs']} epochs and {fields['steps']:,} "
            f"steps; {examples['skipped']} skipped, {examples['repeated']} repeated, "
            f"{examples['bad']} bad",
        ),
        (
            "speed",
            f"{fields['examples_per_second']:,.0f} examples/s, {fields['seconds']:.0f} s in all",
        ),
    ]
    if len(fields["workers"]) > 1:
        rows.append(("workers", _shares(fields["workers"])))
    metrics = dict(fields["metrics"])
    if "auc" in metrics:
        best = fields["best_auc"]
        limit = f" (the planted signal allows {best:.4f})" if best is not None else ""
        rows.append(("AUC", f"{metrics.pop('auc'):.4f}{limit}"))
    rows += [(name, f"{value:.4f}") for name, value in metrics.items()]
    # A report of an earlier version lacks what is asked for by `get`.
    if len(fields["evaluations"]) > 1 and (best := fields.get("best_evaluation")):
        rows.append(("best", _best(best, len(fields["evaluations"]))))
    if fields.get("stopped_early"):
        rows.append(("stopped", f"early: {fields['stopped_early']}"))
    rows += [("lost", f"{failure['task']}: {failure['what']}") for failure in fields["failures"]]
    rows += [(name, fields[field]) for field, name in _PATHS.items() if fields.get(field)]
    rows.append(("report", f"{job_dir}/report.json"))
    return [f"{name:<11}{text}" for name, text in rows]


def _best(evaluation: dict[str, Any], count: int) -> str:
    """What the best evaluation measured, and when it was."""
    metrics = dict(evaluation)
    by, epoch, steps = (metrics.pop(name) for name in ("metric", "epoch", "steps"))
    values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    return f"of {count} evaluations by {by}: {values} (epoch {epoch}, {steps:,} steps)"


def _shares(workers: list[dict[str, Any]]) -> str:
    """How evenly the workers trained what this run did."""
    records = [worker["records"] for worker in workers]
    idle = sum(worker["idle_seconds"] for worker in workers)
    busy = sum(worker["seconds"] for worker in workers)
    total, time = max(1, sum(records)), max(1e-9, idle + busy)
    return (
        f"{min(records) / total:.1%} to {max(records) / total:.1%} of the records each, "
        f"idle {idle / time:.1%} of the time between leases"
    )


if __name__ == "__main__":
    entry.run(main)
