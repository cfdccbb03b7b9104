"""Collects what the tasks of a job say that they take of their machines."""

import time
from collections.abc import Iterable

from tfps.cluster.spec import Cluster
from tfps.cluster.traffic import Traffic
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import TasksMeasured


class TaskUsages:
    """Asks for what is new, again and again."""

    def __init__(self, job_dir: str, cluster: Cluster):
        self._job_dir = job_dir
        self._own = str(cluster.task)
        self._traffic = None if cluster.is_local else Traffic(cluster.addresses()).count
        others = [] if cluster.is_local else list(cluster.peers())
        others += [TaskName("evaluator", index) for index in range(len(cluster.evaluators))]
        # What there is by now is perhaps of tasks of before.
        self._others = {task: TaskUsage.read(job_dir, task) for task in others}

    def look(self) -> Iterable[TasksMeasured]:
        """What this process takes, and what others have reported since the last call."""
        tasks = {self._own: TaskUsage.own(self._traffic)}
        for task, known in self._others.items():
            found = TaskUsage.read(self._job_dir, task)
            if found and found != known:
                self._others[task] = tasks[str(task)] = found
        return [TasksMeasured(at=time.time(), tasks=tasks)]
