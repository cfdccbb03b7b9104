"""Notices tasks that were started again without anybody having missed them."""

import concurrent.futures
from collections.abc import Mapping, Sequence

from tfps.cluster.identity import ServerIdentity
from tfps.cluster.preflight import TaskCheck
from tfps.job_dir.task_name import TaskName

_ASK_SECONDS = 2.0
_MOST_THREADS = 64


class Incarnations:
    """The servers that a run is connected to.

    A server that takes the place of another knows nothing of what that one was asked. Mostly it
    says so; but who waits for a tensor of it, as TensorFlow's workers do, may wait for ever.
    """

    def __init__(self, servers: Mapping[TaskName, tuple[str, int]]):
        self._servers = servers

    @classmethod
    def of(cls, checks: Sequence[TaskCheck], job: str) -> "Incarnations":
        """Those of a job's tasks that have answered.

        Args:
            checks: What was found of the tasks before they were connected to.
        """
        servers = {}
        for each in checks:
            if each.task.job == job and each.incarnation is not None:
                servers[each.task] = each.address, each.incarnation
        return cls(servers)

    def replaced(self) -> list[TaskName]:
        """The tasks in whose place another server answers now.

        Asking takes two seconds at most for every 64 of them.
        """
        if not self._servers:
            return []
        with concurrent.futures.ThreadPoolExecutor(_MOST_THREADS, "incarnation") as pool:
            found = list(pool.map(self._is_replaced, self._servers))
        return [task for task, is_it in zip(self._servers, found, strict=True) if is_it]

    def _is_replaced(self, task: TaskName) -> bool:
        """Whether another server answers in a task's place; one that does not is the monitor's."""
        address, incarnation = self._servers[task]
        identity = ServerIdentity.ask(address, _ASK_SECONDS)
        return identity is not None and identity.incarnation != incarnation
