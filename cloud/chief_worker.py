"""The worker beside the chief, `--chief_works` of trainer.task: when jobs have one, and where."""

import dataclasses

from cloud.job_spec import JobSpec
from cloud.role import Role
from tfps.cluster.chief_worker import LAST_PORT, port_of
from tfps.errors import UserError

_RESTARTS = 3  # trainer.task's default of --chief_worker_restarts


def with_default(spec: JobSpec, has_own_machines: bool) -> JobSpec:
    """A job whose arguments say what the worker beside the chief needs to know, if it has one.

    A job has one where its chief has a worker's machine and its arguments do not say
    --nochief_works. What is added comes before the job's own arguments, which therefore win.

    Args:
        has_own_machines: Whether the platform gives each task what its role asks for.
    """
    added = []
    if has_own_machines and spec.module == "trainer.task" and has_workers_machine(spec):
        added.append("--chief_works")
    if not dataclasses.replace(spec, arguments=(*added, *spec.arguments)).chief_works:
        return spec
    if spec.restarts != _RESTARTS:
        added.append(f"--chief_worker_restarts={spec.restarts}")
    return dataclasses.replace(spec, arguments=(*added, *spec.arguments))


def has_workers_machine(spec: JobSpec) -> bool:
    """Whether the chief of a job with ps has all that each worker has, and it is said what."""
    chief, worker = spec.role("chief"), spec.role("worker")
    if chief is None or worker is None or not spec.role("ps"):
        return False
    if not (worker.machine or worker.cpus):
        return False
    return _machine(chief) == _machine(worker)


def port(spec: JobSpec, chiefs_port: int) -> int | None:
    """The port of the worker beside the chief; None without one."""
    if not spec.chief_works:
        return None
    text = spec.argument("chief_worker_port") or "0"
    if not text.isdecimal() or int(text) > LAST_PORT or int(text) == chiefs_port:
        raise UserError(
            f"--chief_worker_port={text}: name a port from 1 to {LAST_PORT} that is not the "
            f"chief's, {chiefs_port}, or leave it out for {port_of(chiefs_port, 0)}"
        )
    return port_of(chiefs_port, int(text))


def _machine(role: Role) -> Role:
    return dataclasses.replace(role, job="worker", replicas=1)
