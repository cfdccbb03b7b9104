"""How far a Deployment is with what was asked of it, from what the cluster says."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

_LONGEST_REASON = 300


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The servers at one moment.

    Attributes:
        failure: Why it gave up; empty if it did not.
    """

    wanted: int
    new: int
    old: int
    is_seen: bool
    failure: str

    @classmethod
    def of(cls, deployment: Mapping[str, Any]) -> Self:
        """Reads a Deployment as the API has it."""
        status = deployment.get("status") or {}
        wanted = deployment["spec"].get("replicas", 1)
        updated, total = status.get("updatedReplicas", 0), status.get("replicas", 0)
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        progress = conditions.get("Progressing", {})
        generation = deployment["metadata"].get("generation", 1)
        is_seen = status.get("observedGeneration", 0) >= generation
        has_failed = is_seen and progress.get("reason") == "ProgressDeadlineExceeded"
        # Those that answer may be old ones; only where all are new they are known.
        available = status.get("availableReplicas", 0)
        return cls(
            wanted,
            min(updated, max(0, available - (total - updated))),
            total - updated,
            is_seen,
            str(progress.get("message", "it made no progress")) if has_failed else "",
        )

    @property
    def is_done(self) -> bool:
        """Whether all servers are as they are to be, and answer."""
        return self.is_seen and self.new >= self.wanted and not self.old

    @property
    def text(self) -> str:
        """For people."""
        if not self.is_seen:
            return "asked for"
        going = f", {self.old} old to go" if self.old else ""
        return f"{self.new} of {self.wanted} servers answer{going}"


def reasons(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why pods do not answer yet, each reason once."""
    return list(dict.fromkeys(text for pod in pods for text in _reasons(pod)))


def _reasons(pod: Mapping[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _short(condition.get("reason"), condition.get("message"))
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield _short(waiting["reason"], waiting.get("message"))
        ended = (container.get("lastState") or {}).get("terminated")
        if ended:
            why = _short(ended.get("reason"), ended.get("message"))
            yield f"the server ended with exit code {ended.get('exitCode')}: {why}"


def _short(reason: object, message: object) -> str:
    text = " ".join(f"{reason or ''}: {message or ''}".split()).strip(": ")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
