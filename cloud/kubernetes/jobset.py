"""A job as a JobSet, Kubernetes' own kind of job with several roles (0.10 or newer)."""

import json
from collections.abc import Sequence
from typing import Any

from cloud import cluster_in_file
from cloud.job_spec import JobSpec, Role
from cloud.kubernetes import config_map, pod
from cloud.kubernetes.kind import JOBSET
from cloud.kubernetes.pod import CONTAINER, MANAGED_BY, PORT
from cloud.kubernetes.volume import Volume
from tfps.cluster.spec import TF_CONFIG, TF_CONFIG_FILE
from tfps.errors import EXIT_BUG, EXIT_RUN, EXIT_USER

_KEPT_SECONDS = 7 * 24 * 3600  # with its pods' logs, after its end
_MOST_RESTARTS = 2**31 - 1


def jobset(spec: JobSpec, volumes: Sequence[Volume] = ()) -> dict[str, Any]:
    """Renders a job.

    Every task is a Job of one pod, so that Kubernetes replaces a lost pod alone, under the same
    host name. JobSet's own RestartJob is not used: it is off unless a cluster's administrator
    turns it on. A chief that dies takes all tasks with it, because servers that saw it interrupted
    have ended well by then and a Job that ended well is not begun again.
    """
    return {
        "apiVersion": f"{JOBSET.group}/{JOBSET.version}",
        "kind": "JobSet",
        "metadata": {"name": spec.name, "labels": {**spec.labels, **MANAGED_BY}},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["chief"]},
            "failurePolicy": _failure_policy(spec),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "replicatedJobs": [
                {
                    "name": role.job,
                    "replicas": role.replicas,
                    "template": {"spec": _job(spec, role, volumes)},
                }
                for role in spec.roles
            ],
        },
    }


def _failure_policy(spec: JobSpec) -> dict[str, Any]:
    """What the failure of a Job means; without a matching rule, all tasks are restarted."""
    return {
        "maxRestarts": spec.restarts,
        "rules": [
            {
                "name": "chief_disrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "targetReplicatedJobs": ["chief"],
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": ["condition DisruptionTarget"],
            },
            {
                "name": "ended_for_good",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
            },
        ],
    }


def _job(spec: JobSpec, role: Role, volumes: Sequence[Volume]) -> dict[str, Any]:
    files = config_map.volume(spec) if has_config_map(spec) else None
    template = pod.template(spec, role, volumes, _environment(spec, role), files)
    template["spec"]["restartPolicy"] = "OnFailure" if role.job == "evaluator" else "Never"
    job: dict[str, Any] = {
        "parallelism": 1,
        "completions": 1,
        "completionMode": "Indexed",
        **_restarts(spec, role),
    }
    if role.job == "chief" and spec.timeout_seconds:
        job["activeDeadlineSeconds"] = spec.timeout_seconds
    return {**job, "template": template}


def _restarts(spec: JobSpec, role: Role) -> dict[str, Any]:
    """When a Job makes a new pod, and when it fails.

    A chief that ended by itself has told why, and would again; one that was killed may go on. A
    server is restarted unless its input is bad. Pods that Kubernetes itself took away (a drained
    node, a spot machine) do not count. An evaluator never ends the job.
    """
    if role.job == "evaluator":
        return {"backoffLimit": _MOST_RESTARTS}
    is_chief = role.job == "chief"
    for_good = [EXIT_BUG, EXIT_USER, EXIT_RUN] if is_chief else [EXIT_USER]
    codes = {"containerName": CONTAINER, "operator": "In", "values": for_good}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {
        "backoffLimit": 0 if is_chief else spec.restarts,
        "podReplacementPolicy": "Failed",  # never two pods under one name
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": codes},
                {"action": "FailJob" if is_chief else "Ignore", "onPodConditions": disrupted},
            ]
        },
    }


def cluster(spec: JobSpec) -> dict[str, list[str]]:
    """The addresses of a job's tasks, as JobSet names them, by job."""
    return {role.job: _addresses(spec, role) for role in spec.roles}


def has_config_map(spec: JobSpec) -> bool:
    """Whether a job's cluster is too long for its tasks' environment."""
    return spec.tasks > 1 and cluster_in_file.is_needed(json.dumps(cluster(spec)))


def _environment(spec: JobSpec, role: Role) -> list[dict[str, Any]]:
    name = {"name": "JOBSET_NAME", "value": spec.name}
    if spec.tasks == 1:
        return [name]
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{JOBSET.index_label}']"}}
    # Kubernetes puts the index in, since all Jobs of a role have one template.
    task = f'"task": {{"type": "{role.job}", "index": $(JOB_INDEX)}}'
    found: list[dict[str, Any]] = [name, {"name": "JOB_INDEX", "valueFrom": field}]
    if has_config_map(spec):
        return [
            *found,
            {"name": TF_CONFIG, "value": f"{{{task}}}"},
            {"name": TF_CONFIG_FILE, "value": config_map.PATH},
        ]
    described = json.dumps(cluster(spec))
    return [*found, {"name": TF_CONFIG, "value": f'{{"cluster": {described}, {task}}}'}]


def _addresses(spec: JobSpec, role: Role) -> list[str]:
    hosts = (f"{spec.name}-{role.job}-{i}-0.{spec.name}" for i in range(role.replicas))
    return [f"{host}:{PORT}" for host in hosts]
