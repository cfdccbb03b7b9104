"""Decodes the cluster and this process's place in it from the environment.

The worker next to the chief, on its machine, is named by no platform's TF_CONFIG. Every task adds
it to the cluster by the same rule, since all have the same flags: it is the last worker, at the
chief's host and a port that follows from the chief's.

A TF_CONFIG without a chief, as Azure ML, Spark's launchers and `MultiWorkerMirroredStrategy` have
it, is led by its first worker. With ps that one trains too, by the worker next to it.
"""

import dataclasses
import json
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from tfps.cluster.spec import (
    CLUSTER_SPEC,
    JOBS,
    TF_CONFIG,
    TF_CONFIG_FILE,
    Cluster,
    host_port,
    sizes,
)
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

LAST_PORT = (1 << 16) - 1
MOST_BYTES = 1 << 20  # as much as a ConfigMap of Kubernetes holds: 9,000 addresses of 110 bytes
# The job names that each variable may use, and the job that each stands for.
_NAMES: Mapping[str, Mapping[str, str]] = {
    TF_CONFIG: {job: job for job in JOBS} | {"master": "chief"},
    CLUSTER_SPEC: {f"workerpool{pool}": job for pool, job in enumerate(JOBS)},
}


def decode(environ: Mapping[str, str], chief_worker_port: int | None = None) -> Cluster:
    """Reads the cluster from TF_CONFIG, else from Vertex AI's CLUSTER_SPEC.

    A TF_CONFIG without cluster, `{"task": …}`, has it in the file that TF_CONFIG_FILE names, as
    `{"cluster": …}`: one variable holds 128 KiB at most, some 1,200 long addresses.

    `master` becomes `chief`; `evaluator` is taken out of the cluster, but stays a task type. Vertex
    AI's TF_CONFIG leaves the evaluator out, so it is then looked for in CLUSTER_SPEC too. With
    neither variable, or with a chief alone, the result is local mode.

    `chief_worker_port` adds a worker next to the chief, at this port, or with 0 at the one after
    the chief's; None adds none where there is a chief of its own.
    """
    path = environ.get(TF_CONFIG_FILE)
    if path is not None and TF_CONFIG not in environ:
        raise UserError(
            f"{TF_CONFIG_FILE} names a cluster, but {TF_CONFIG} does not say which task this is; "
            f'set it to \'{{"task": {{"type": "worker", "index": 0}}}}\', or unset {TF_CONFIG_FILE}'
        )
    found = [
        _decode(name, environ[name], path if name == TF_CONFIG else None, chief_worker_port)
        for name in (TF_CONFIG, CLUSTER_SPEC)
        if name in environ
    ]
    if chief_worker_port is not None:
        _check_chief_works(found)
    if not found:
        return Cluster()
    evaluators = next((each.evaluators for each in found if each.evaluators), ())
    return dataclasses.replace(found[0], evaluators=evaluators)


def _check_chief_works(found: Sequence[Cluster]) -> None:
    if not found or found[0].is_local:
        raise UserError(
            "--chief_works, but there is no cluster: the one process trains; leave the flag out"
        )
    if found[0].is_replicated:
        raise UserError(
            "--chief_works, but there are no ps: the chief trains as every replica does "
            "(--mode.name=allreduce); leave the flag out"
        )


def _decode(variable: str, text: str, path: str | None, chief_worker_port: int | None) -> Cluster:
    config = _parse(variable, text)
    if path is not None:
        config = _with_cluster(config, path)
    layer = config.get("rpc_layer", "grpc")
    if layer != "grpc":
        raise UserError(f'{variable}: rpc_layer is {layer!r}; leave it out or write "grpc"')
    spec = _jobs(variable, _object(variable, config, "cluster"))
    evaluators = spec.pop("evaluator", ())
    is_led = variable == TF_CONFIG and "chief" not in spec and "worker" in spec
    chief = spec["worker"][:1] if is_led else spec.get("chief", ())
    wants_worker = chief_worker_port is not None or is_led
    chief_works = wants_worker and {"worker", "ps"} <= set(spec) and len(chief) == 1
    if chief_works:
        spec = _with_chief_worker(variable, spec, chief[0], chief_worker_port or 0)
    job, index = _task(variable, _object(variable, config, "task"), spec)
    if is_led:
        spec, job, index = _led_by_first_worker(spec, job, index)
    _check_jobs(variable, spec)
    if len(evaluators) > 1 or (job == "evaluator" and index):
        name = _first(variable, "evaluator")
        raise UserError(f"{variable}: a job has one {name} at most; start it alone, with index 0")
    if set(spec) <= {"chief"}:
        return Cluster(job=job, index=index)
    return Cluster(
        chief=spec["chief"],
        workers=spec["worker"],
        ps=spec.get("ps", ()),
        evaluators=evaluators,
        job=job,
        index=index,
        chief_works=chief_works,
        first_worker_leads=is_led,
    )


def _led_by_first_worker(
    spec: Mapping[str, tuple[str, ...]], job: str, index: int
) -> tuple[dict[str, tuple[str, ...]], str, int]:
    """A cluster and a task of it, once its first worker is its chief: the others are one less."""
    found = {**spec, "chief": spec["worker"][:1], "worker": spec["worker"][1:]}
    if job == "worker":
        job, index = ("worker", index - 1) if index else ("chief", 0)
    return {name: addresses for name, addresses in found.items() if addresses}, job, index


def _with_cluster(config: dict[str, Any], path: str) -> dict[str, Any]:
    """A TF_CONFIG with the cluster that a file describes."""
    if "cluster" in config:
        raise UserError(f"both {TF_CONFIG} and {TF_CONFIG_FILE}={path} give a cluster; keep one")
    described = f"{TF_CONFIG_FILE}={path}"
    found = _parse(described, _read_file(described, path))
    return {**config, "cluster": _object(described, found, "cluster")}


def _parse(variable: str, text: str) -> dict[str, Any]:
    if not text.strip():
        raise UserError(f"{variable} is empty; unset it for local mode, or describe the cluster")
    try:
        config = json.loads(text, object_pairs_hook=lambda pairs: _unique(variable, pairs))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{variable} is not JSON: {error}; quote it in the shell with '…', and its keys with "
            '"…"'
        ) from error
    if not isinstance(config, dict):
        raise UserError(
            f"{variable} is {_kind(config)}; it must be a JSON object "
            '{"cluster": {…}, "task": {…}}'
        )
    return config


def _unique(variable: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UserError(f"{variable}: the key {key!r} stands twice in one object; keep one")
        found[key] = value
    return found


def _object(variable: str, config: Mapping[str, Any], key: str) -> dict[str, Any]:
    form = {
        "cluster": f'{{"{_first(variable, "worker")}": ["host:port", …], …}}',
        "task": f'{{"type": "{_first(variable, "worker")}", "index": 0}}',
    }[key]
    if key not in config:
        hint = f"add {key!r}: {form}, or unset {variable} for local mode"
        found = ", ".join(map(repr, config)) or "none"
        raise UserError(f"{variable} has no {key!r} (its keys: {found}); {hint}")
    if not isinstance(config[key], dict):
        raise UserError(f"{variable}: {key} is {_kind(config[key])}; it must be an object {form}")
    return config[key]


def _first(variable: str, job: str) -> str:
    """The name that `variable` uses for `job`."""
    names = _NAMES.get(variable, _NAMES[TF_CONFIG])  # a file's are those of TF_CONFIG
    return next(name for name, known in names.items() if known == job)


def _jobs(variable: str, cluster: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The addresses by job, every one checked."""
    names = _NAMES[variable]
    if not cluster:
        raise UserError(f"{variable}: cluster is empty; add its jobs, or unset it for local mode")
    if "chief" in cluster and "master" in cluster:
        raise UserError(f"{variable}: cluster has both chief and master, one job; keep chief")
    spec: dict[str, tuple[str, ...]] = {}
    owners: dict[tuple[str, int], str] = {}
    for name, hosts in cluster.items():
        if name not in names:
            raise UserError(
                f"{variable}: cluster.{name} is no job; rename it to one of {', '.join(names)}"
            )
        for index, address in enumerate(_list(f"{variable}: cluster.{name}", hosts)):
            own = f"cluster.{name}[{index}]"
            if not isinstance(address, str):
                kind = _kind(address)
                raise UserError(f'{variable}: {own} is {kind}; it must be a string "host:port"')
            owner = owners.setdefault(host_port(f"{variable}: {own}", address), own)
            if owner != own:
                hint = f"{address} is also {owner}; give every task its own address"
                raise UserError(f"{variable}: {own}: {hint}")
        spec[names[name]] = tuple(hosts)
    return spec


def _list(where: str, hosts: Any) -> list[Any]:
    if isinstance(hosts, dict):
        raise UserError(
            f"{where} is an object (a sparse map, as dynamic workers get); every task must know "
            'every address, so give the full list ["host:port", …]'
        )
    if not isinstance(hosts, list):
        raise UserError(f'{where} is {_kind(hosts)}; it must be a list ["host:port", …]')
    if not hosts:
        raise UserError(f"{where} is empty; list its addresses, or remove the key")
    return hosts


def _task(
    variable: str, task: Mapping[str, Any], spec: Mapping[str, tuple[str, ...]]
) -> tuple[str, int]:
    names = _NAMES[variable]
    if "type" not in task:
        raise UserError(f"{variable}: task has no type; add one of {', '.join(names)}")
    name = task["type"]
    if not isinstance(name, str) or name not in names:
        raise UserError(f"{variable}: task.type is {name!r}; write one of {', '.join(names)}")
    if "index" not in task:
        raise UserError(f'{variable}: task has no index; add "index": 0, or this task\'s own')
    job, index = names[name], task["index"]
    if isinstance(index, bool) or not isinstance(index, int):
        raise UserError(
            f"{variable}: task.index is {index!r} ({_kind(index)}); write a whole number, unquoted"
        )
    if index < 0:
        raise UserError(f"{variable}: task.index is {index}; write 0 or more, indices start at 0")
    if job == "evaluator":
        return job, index
    if job not in spec:
        raise UserError(
            f"{variable}: task.type is {name}, but cluster has no {name}; "
            f"add cluster.{name}, or correct task.type (the cluster: {sizes(spec)})"
        )
    if index >= len(spec[job]):
        raise UserError(
            f"{variable}: task.index is {index}, but cluster.{name} has {len(spec[job])} "
            f"address(es); write an index from 0 to {len(spec[job]) - 1}, or list all addresses"
        )
    return job, index


def _check_jobs(variable: str, spec: Mapping[str, tuple[str, ...]]) -> None:
    """Refuses clusters in which nobody could train."""
    chief, worker, ps = (_first(variable, job) for job in ("chief", "worker", "ps"))
    if "chief" not in spec and spec:
        raise UserError(
            f"{variable}: cluster has {sizes(spec)} but no {chief}, which runs the training; "
            f'add cluster.{chief}: ["host:port"]'
        )
    if len(spec.get("chief", ())) > 1:
        raise UserError(
            f"{variable}: cluster.{chief} has {len(spec['chief'])} addresses; keep exactly one"
        )
    if "ps" in spec and "worker" not in spec:
        raise UserError(
            f"{variable}: cluster.{ps} has no workers to serve; add cluster.{worker}, "
            f"or remove cluster.{ps} for local mode"
        )


def _read_file(described: str, path: str) -> str:
    hint = f'give {TF_CONFIG_FILE} the path of a JSON file {{"cluster": {{…}}}}, or unset it'
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{described} is no regular file; {hint}")
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{described} cannot be read ({reason}); {hint}") from None
    if len(data) > MOST_BYTES:
        raise UserError(
            f"{described} has more than {MOST_BYTES} bytes, so it is no cluster; {hint}"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{described} is not UTF-8; {hint}") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


def chief_worker_port_of(chiefs_port: int, named: int) -> int:
    """The port that --chief_worker_port names, else (0) the one after the chief's."""
    return named or chiefs_port + 1


def _with_chief_worker(
    variable: str, spec: Mapping[str, tuple[str, ...]], chief: str, port: int
) -> dict[str, tuple[str, ...]]:
    host, chiefs_port = host_port(f"{variable}: cluster.chief", chief)
    port = chief_worker_port_of(chiefs_port, port)
    if port > LAST_PORT:
        raise UserError(
            f"{variable}: the chief's port, {chiefs_port}, is the last, and its worker would have "
            "the one after it; name another with --chief_works --chief_worker_port=PORT"
        )
    for job, addresses in spec.items():
        for index, address in enumerate(addresses):
            if host_port(f"{variable}: cluster.{job}", address) == (host, port):
                raise UserError(
                    f"{variable}: the chief's worker would have the address {address} of "
                    f"{TaskName(job, index).label}; name another port with --chief_works "
                    "--chief_worker_port=PORT"
                )
    own = f"{chief.rpartition(':')[0]}:{port}"
    return {**spec, "worker": (*spec["worker"], own)}


def chief_worker_environment(environ: Mapping[str, str], cluster: Cluster) -> dict[str, str]:
    """The environment of the chief's worker: the chief's, with another task."""
    found = dict(environ)
    index = cluster.of_chief_worker.index + cluster.first_worker_leads
    for variable in _NAMES:
        if variable in environ:
            config = json.loads(environ[variable])
            config["task"] |= {"type": _first(variable, "worker"), "index": index}
            found[variable] = json.dumps(config, separators=(",", ":"))
    return found
