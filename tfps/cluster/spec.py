"""The cluster and this process's place in it, and the addresses of tasks."""

import dataclasses
import json
import re
import socket
from collections.abc import Mapping
from typing import Any

from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

TF_CONFIG = "TF_CONFIG"
TF_CONFIG_FILE = "TF_CONFIG_FILE"
CLUSTER_SPEC = "CLUSTER_SPEC"
JOBS = ("chief", "worker", "ps", "evaluator")
_HOST = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]"
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The tasks of a cluster, and which of them this process is.

    Without worker and ps there is no cluster: local mode, one process that does everything.
    """

    chief: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()
    # one at most, which is no part of the cluster and serves nothing
    evaluators: tuple[str, ...] = ()
    job: str = "chief"
    index: int = 0
    chief_works: bool = False  # whether the last worker is the one next to the chief
    # whether TF_CONFIG has no chief: its worker 0 is the chief here, its worker 1 worker 0
    first_worker_leads: bool = False

    @property
    def is_local(self) -> bool:
        return not (self.workers or self.ps)

    @property
    def is_replicated(self) -> bool:
        """Whether there are no ps: chief and workers then hold the same parameters."""
        return bool(self.workers) and not self.ps

    @property
    def address(self) -> str:
        """This task's own "host:port"."""
        addresses = self.spec().get(self.job, [])
        if not addresses:
            raise UserError(f"{self.name} has no address: it is in no cluster; give it a TF_CONFIG")
        return addresses[self.index]

    @property
    def name(self) -> str:
        """This task for people, for example "worker 1 of 4" (indices start at 0)."""
        tasks = len(self.spec().get(self.job, []))
        return f"{self.task.label} of {tasks}" if tasks and self.job != "chief" else self.task.label

    @property
    def task(self) -> TaskName:
        return TaskName(self.job, self.index)

    @property
    def of_chief_worker(self) -> "Cluster":
        """The cluster as the worker next to the chief sees it, where there is one."""
        return dataclasses.replace(self, job="worker", index=len(self.workers) - 1)

    def tasks(self) -> dict[str, int]:
        """Number of tasks by job."""
        return {job: len(addresses) for job, addresses in self.spec().items()}

    def peers(self) -> dict[TaskName, str]:
        """Addresses of all ps and workers."""
        spec = self.spec()
        return {
            TaskName(job, index): address
            for job in ("ps", "worker")
            for index, address in enumerate(spec.get(job, []))
        }

    def spec(self) -> dict[str, list[str]]:
        """Addresses by job, for `tf.train.ClusterSpec`; jobs without tasks are left out."""
        tasks = {"chief": self.chief, "worker": self.workers, "ps": self.ps}
        return {job: list(addresses) for job, addresses in tasks.items() if addresses}

    def addresses(self) -> list[str]:
        """Addresses of the chief, all workers and ps."""
        return [address for addresses in self.spec().values() for address in addresses]

    def tf_config(self, job: str, index: int) -> str:
        """Encodes the cluster for one of its tasks."""
        if self.is_local:
            raise UserError("local mode has no TF_CONFIG: leave the variable unset")
        spec = self.spec()
        if job not in JOBS:
            raise UserError(f"job {job!r} is unknown; use one of {', '.join(JOBS)}")
        if index < 0 or (job != "evaluator" and index >= len(spec.get(job, []))):
            raise UserError(f"the cluster has no {job} {index}; its jobs are {sizes(spec)}")
        listed = spec | ({"evaluator": list(self.evaluators)} if self.evaluators else {})
        return json.dumps({"cluster": listed, "task": {"type": job, "index": index}})


def sizes(spec: Mapping[str, Any]) -> str:
    """How many tasks each job has, in words."""
    return ", ".join(f"{len(hosts)} {job}" for job, hosts in spec.items()) or "none"


def host_port(where: str, address: str) -> tuple[str, int]:
    """The host and port of an address "host:port", checked."""
    if "://" in address or "/" in address:
        raise UserError(f'{where}: {address!r} is a URL; write only "host:port"')
    host, colon, port = address.rpartition(":")
    if not colon or (address.startswith("[") and address.endswith("]")):
        raise UserError(f'{where}: {address!r} has no port; write it as "host:port"')
    if not host:
        raise UserError(f'{where}: {address!r} has no host; write it as "host:port"')
    if not _HOST.fullmatch(host):
        raise UserError(
            f"{where}: {host!r} is no host name; write a name, an IPv4 address or [IPv6]"
        )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UserError(
            f"{where}: {address!r} has the port {port!r}; write a number from 1 to 65535"
        )
    return host.lower().rstrip("."), int(port)


def refuse_taken_port(cluster: Cluster) -> None:
    """Asks the system, since TensorFlow's own message hides what is wrong."""
    port = int(cluster.address.rsplit(":", 1)[1])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise port_error(cluster, error.strerror or str(error)) from None


def port_error(cluster: Cluster, reason: str) -> UserError:
    """The error of a task that cannot serve, for a reason as the system or TensorFlow says it."""
    is_chief_worker = cluster.chief_works and cluster.task == cluster.of_chief_worker.task
    where = "with --chief_works --chief_worker_port=PORT" if is_chief_worker else "in TF_CONFIG"
    return UserError(
        f"{cluster.name} cannot serve at {cluster.address}: {reason}; free the port, or give this "
        f"task another one {where}"
    )
