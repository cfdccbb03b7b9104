"""What the pods of a job have written since it was last asked."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloud.kubernetes.kind import KubernetesKind
from cloud.kubernetes.pod import CONTAINER
from cloud.remote_target import LABELS, said, teller

_OVERLAP_SECONDS = 30  # that clocks may differ
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d) ?(.*)")


class PodLogs:
    """Reads each line of each container once, also of containers that were restarted."""

    def __init__(self, kind: KubernetesKind, read: Callable[..., str]):
        self._kind = kind
        self._read = read
        self._streams: dict[tuple[str, int], _Stream] = {}  # by pod's uid, and container's start

    def new_lines(self, pods: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Task and text of each new line."""
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
            task = self._kind.task(pod["metadata"].get("labels") or {})
            for state in (pod.get("status") or {}).get("containerStatuses") or []:
                if state["name"] == CONTAINER:
                    for line in self._lines(pod["metadata"], state):
                        text, labels = _plain(line)
                        yield teller(task, labels), text

    def _lines(self, metadata: Mapping[str, Any], state: Mapping[str, Any]) -> Iterator[str]:
        restarts = state.get("restartCount", 0)
        is_waiting = "waiting" in (state.get("state") or {})
        if restarts and (metadata["uid"], restarts) not in self._streams:
            yield from self._stream(metadata, restarts - 1).lines(previous=not is_waiting)
        if is_waiting:  # to be started; what ran before still counts as the current one
            return
        yield from self._stream(metadata, restarts).lines(previous=False)

    def _stream(self, metadata: Mapping[str, Any], start: int) -> "_Stream":
        def read(**options: Any) -> str:
            return self._read(metadata["name"], container=CONTAINER, timestamps=True, **options)

        return self._streams.setdefault((metadata["uid"], start), _Stream(read))


class _Stream:
    """The output of one start of one container."""

    def __init__(self, read: Callable[..., str]):
        self._read = read
        self._last = ""  # time of the last line
        self._count = 0  # of the lines at that time
        self._read_at: float | None = None

    def lines(self, previous: bool) -> Iterator[str]:
        now = time.monotonic()
        options: dict[str, Any] = {"previous": previous}
        if self._read_at is not None:
            options["since_seconds"] = math.ceil(now - self._read_at) + _OVERLAP_SECONDS
        seen = self._count
        for line in self._read(**options).splitlines():
            match = _STAMPED.fullmatch(line)
            stamp = f"{match[1]}.{(match[2] or '').ljust(9, '0')}" if match else self._last
            text = match[3] if match else line
            if stamp < self._last:
                continue
            if stamp == self._last and seen:
                seen -= 1
                continue
            if stamp > self._last:
                self._last, self._count, seen = stamp, 0, 0
            self._count += 1
            yield text
        self._read_at = now


def _plain(line: str) -> tuple[str, Mapping[str, Any]]:
    """What a line says that may be an object of JSON, as tasks write them here, and its labels."""
    if not line.startswith("{"):
        return line, {}
    try:
        fields = json.loads(line)
    except ValueError:
        return line, {}
    labels = fields.get(LABELS)
    return said(fields) or line, labels if isinstance(labels, dict) else {}
