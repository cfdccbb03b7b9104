"""Faults to inject into a local cluster, as a person writes them."""

import dataclasses
import random
import re
import signal
from collections.abc import Mapping

from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

_KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_FAULT = re.compile(
    r"(?P<kind>\w+):(?P<job>\w+)(:(?P<index>\d+|\*))?@(?P<at>[\d.]+)s(-(?P<until>[\d.]+)s)?"
    r"(\+(?P<hold>[\d.]+)s)?"
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A signal to a task at a time.

    Attributes:
        at: Seconds after the start of the cluster.
        hold: For stop, seconds until SIGCONT; None leaves it stopped.
    """

    kind: str
    task: TaskName
    at: float
    hold: float | None = None

    @property
    def signal(self) -> signal.Signals:
        """What is sent."""
        return _KINDS[self.kind]

    def __str__(self) -> str:
        hold = f" for {self.hold:g} s" if self.hold is not None else ""
        return f"{self.kind} {self.task.label}{hold}"


def parse(text: str, tasks: Mapping[str, int], seed: int) -> list[Fault]:
    """Reads a list of faults such as `kill:worker:*@30s,stop:ps:0@60s+10s,term:chief@90s-120s`.

    Args:
        text: Faults with commas between: kind, job, index (`*` draws one; may be left out for a
            chief), time after the start (or two, between which one is drawn), and for a stop how
            long it lasts.
    """
    draw = random.Random(seed)  # noqa: S311 - no secrets
    return sorted(
        (_fault(part.strip(), tasks, draw) for part in text.split(",")),
        key=lambda fault: fault.at,
    )


def _fault(text: str, tasks: Mapping[str, int], draw: random.Random) -> Fault:
    match = _FAULT.fullmatch(text)
    if not match:
        raise UserError(
            f"--chaos: {text!r} is no fault; write KIND:JOB:INDEX@SECONDSs, such as "
            "kill:worker:*@30s, stop:ps:0@60s+10s or term:chief@90s-120s"
        )
    kind, job, index = match["kind"], match["job"], match["index"]
    if kind not in _KINDS:
        raise UserError(f"--chaos: {text!r}: kind {kind!r} is unknown; use {', '.join(_KINDS)}")
    if match["hold"] and kind != "stop":
        raise UserError(f"--chaos: {text!r}: only a stop lasts; leave out +{match['hold']}s")
    at = _time(text, match["at"])
    if match["until"]:
        at = draw.uniform(at, _time(text, match["until"]))
    hold = _time(text, match["hold"]) if match["hold"] else None
    return Fault(kind, _task(text, job, index, tasks, draw), at, hold)


def _task(
    text: str, job: str, index: str | None, tasks: Mapping[str, int], draw: random.Random
) -> TaskName:
    count = tasks.get(job, 0)
    if not count:
        jobs = ", ".join(name for name, number in tasks.items() if number)
        raise UserError(f"--chaos: {text!r}: the cluster has no {job}; its jobs are {jobs}")
    if job == "chief":
        return TaskName(job, 0)
    number = draw.randrange(count) if index in (None, "*") else int(index or 0)
    if number >= count:
        raise UserError(f"--chaos: {text!r}: the cluster has {count} {job}; indices start at 0")
    return TaskName(job, number)


def _time(text: str, seconds: str) -> float:
    try:
        return float(seconds)
    except ValueError:
        raise UserError(f"--chaos: {text!r}: {seconds!r} is no number of seconds") from None
