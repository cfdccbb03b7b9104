"""What traces of a job's tasks tell, as lines for people."""

from collections.abc import Mapping, Sequence

from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import RunBegan, RunEvent
from tfps.profiling.bound import find_bound
from tfps.profiling.shares import Activity, TaskShares, shares_of, span_of
from tfps.profiling.trace import TaskTrace
from trainer.console.text_table import text_table

_OPERATIONS = 10
_NO_STEP = (
    "No worker has taken a batch while it was traced: it may wait for a lease, or for the storage; "
    "trace for longer (--seconds)."
)
_IN_STEP = ("sync", "bounded", "allreduce")  # modes in which workers wait for each other
_SHOWN = (
    Activity.READING,
    Activity.PULLING,
    Activity.COMPUTING,
    Activity.PUSHING,
    Activity.SAVING,
    Activity.OTHER,
)


def lines(traces: Mapping[TaskName, TaskTrace], events: Sequence[RunEvent]) -> list[str]:
    seen = {task: found for task, found in traces.items() if found.threads}
    if not seen:
        raise UserError("no task did anything while it was traced; trace for longer (--seconds)")
    span = span_of(seen.values())
    senders = {
        sending.operation: str(task)
        for task, found in seen.items()
        if task.job == "ps"
        for sending in found.sendings
    }
    shares = {task: shares_of(found, span, senders, _OPERATIONS) for task, found in seen.items()}
    told = _table(shares)
    for job in dict.fromkeys(task.job for task in shares):
        told += ["", *_operations(job, shares)]
    if not any(each.steps for each in shares.values()):
        return [*told, "", _NO_STEP]
    began = next((event for event in reversed(events) if isinstance(event, RunBegan)), None)
    if began is None:
        raise UserError(
            "the job's history is not there: JOB_DIR/history; what bounds it is unknown"
        )
    bound = find_bound(
        shares,
        began.mode in _IN_STEP,
        int(began.settings.get("train.batch_size", "0")),
    )
    return [*told, "", bound.sentence]


def _table(shares: Mapping[TaskName, TaskShares]) -> list[str]:
    """How each task has spent its time."""
    rows = []
    for task, found in shares.items():
        waits = [f"{found.waiting:.0%}"]
        waits += [f"{share:.0%} for {other}" for other, share in sorted(found.waits.items())]
        cells = [f"{found.shares[each]:.0%}" for each in _SHOWN]
        steps = f"{found.steps:,}" if found.steps else ""
        rows.append((task.label, steps, *cells, ", ".join(waits)))
    header = ("task", "steps", *(each.value for each in _SHOWN), "waits")
    return text_table(header, rows, right=range(1, len(header) - 1))


def _operations(job: str, shares: Mapping[TaskName, TaskShares]) -> list[str]:
    """The heaviest operations of the tasks of a job."""
    tasks = [found for task, found in shares.items() if task.job == job]
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for found in tasks:
        for each in found.operations:
            seconds[each.name] = seconds.get(each.name, 0.0) + each.seconds
            counts[each.name] = counts.get(each.name, 0) + each.count
    heaviest = sorted(seconds, key=lambda name: seconds[name], reverse=True)[:_OPERATIONS]
    total = sum(found.seconds for found in tasks)
    rows = [
        (
            name,
            f"{counts[name]:,}",
            f"{1e3 * seconds[name]:,.1f} ms",
            f"{seconds[name] / total:.1%}",
        )
        for name in heaviest
    ]
    title = f"heaviest of the {job}"
    return text_table((title, "count", "time", "of a core"), rows, right=(1, 2, 3)) if rows else []
