"""Where a replica's closures run, once all replicas have come together."""

import time

from tfps.allreduce.group import AUTO, ReplicaGroup
from tfps.cluster.prober import ask_all
from tfps.cluster.spec import Cluster
from tfps.coordinator.executor import LocalExecutor
from tfps.errors import RunError, UserError
from tfps.job_dir.task_name import TaskName


class ReplicaExecutor(LocalExecutor):
    """One of several equal processes, which hold the same parameters."""

    def __init__(self, group: ReplicaGroup):
        super().__init__()
        self.group = group

    @classmethod
    def join(cls, cluster: Cluster, limit_seconds: float, hint: str = AUTO) -> "ReplicaExecutor":
        """Waits for all other replicas, where there are no ps; as the chief."""
        deadline = time.monotonic() + limit_seconds

        def refuse_late() -> None:
            if time.monotonic() < deadline:
                return
            addresses = _other_replicas(cluster)
            seen = ask_all(addresses.values())
            away = [
                f"{task} at {address}: {seen[address].value}, {seen[address].what_to_do}"
                for task, address in addresses.items()
                if not seen[address].answers
            ]
            if away:
                raise UserError(
                    f"not all replicas answered within {limit_seconds:.0f} s: {'; '.join(away)}"
                )
            raise RunError(
                f"all replicas answer, but have not come together within {limit_seconds:.0f} s; "
                "look in their logs, and whether all have the same TF_CONFIG but for the task"
            )

        return cls(ReplicaGroup.join(cluster, refuse_late, hint))


def _other_replicas(cluster: Cluster) -> dict[TaskName, str]:
    """Addresses of all other replicas."""
    tasks = {"chief": cluster.chief, "worker": cluster.workers}
    replicas = {
        TaskName(job, index): address
        for job, addresses in tasks.items()
        for index, address in enumerate(addresses)
    }
    return {task: address for task, address in replicas.items() if task != cluster.task}
