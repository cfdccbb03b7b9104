"""The worker next to the chief, on its machine, which no platform's TF_CONFIG names.

Every task adds it to the cluster by the same rule, since all have the same flags: it is the last
worker, at the chief's host and a port that follows from the chief's.
"""

import json
from collections.abc import Mapping

from tfps.cluster.address import host_port
from tfps.cluster.spec import CLUSTER_SPEC, JOBS, TF_CONFIG
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

_JOB = "worker"
# What each variable calls a worker.
_TYPES = {TF_CONFIG: _JOB, CLUSTER_SPEC: f"workerpool{JOBS.index(_JOB)}"}
LAST_PORT = (1 << 16) - 1


def port_of(chiefs_port: int, named: int) -> int:
    """The port of the chief's worker: the one that is named, else the one after the chief's.

    Args:
        named: By --chief_worker_port; 0 for none.
    """
    return named or chiefs_port + 1


def add(
    variable: str, spec: Mapping[str, tuple[str, ...]], port: int
) -> dict[str, tuple[str, ...]]:
    """Adds the chief's worker to a cluster.

    Args:
        port: Of the chief's worker; 0 for the one after the chief's.
    """
    [chief] = spec["chief"]
    host, chiefs_port = host_port(f"{variable}: cluster.chief", chief)
    port = port_of(chiefs_port, port)
    if port > LAST_PORT:
        raise UserError(
            f"--chief_works: the chief's port, {chiefs_port}, is the last, and its worker would "
            "have the one after it; name another with --chief_worker_port"
        )
    for job, addresses in spec.items():
        for index, address in enumerate(addresses):
            if host_port(f"{variable}: cluster.{job}", address) == (host, port):
                raise UserError(
                    f"--chief_works: the chief's worker would have the address {address} of "
                    f"{TaskName(job, index).label}; name another port with --chief_worker_port"
                )
    own = f"{chief.rpartition(':')[0]}:{port}"
    return {**spec, _JOB: (*spec[_JOB], own)}


def environment(environ: Mapping[str, str], index: int) -> dict[str, str]:
    """The environment of the chief's worker: the chief's, with another task."""
    found = dict(environ)
    for variable, job in _TYPES.items():
        if variable in environ:
            config = json.loads(environ[variable])
            config["task"] |= {"type": job, "index": index}
            found[variable] = json.dumps(config, separators=(",", ":"))
    return found
