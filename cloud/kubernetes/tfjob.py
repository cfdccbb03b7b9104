"""A job as a TFJob, of Kubeflow's training operator 1.9."""

import json
from collections.abc import Sequence
from typing import Any

from cloud.job_spec import JobSpec
from cloud.kubernetes import pod
from cloud.kubernetes.kind import TFJOB
from cloud.kubernetes.pod import MANAGED_BY, PORT
from cloud.kubernetes.volume import Volume
from tfps.errors import UserError

_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_LONGEST_NAMESPACE = 63
_REST_BYTES = 100  # of TF_CONFIG, beside the cluster
_MOST_BYTES = (1 << 17) - 1
_KEPT_SECONDS = 7 * 24 * 3600  # with its pods' logs, after its end


def check_size(spec: JobSpec, namespace: str) -> None:
    """Refuses more tasks than the operator can tell each other.

    It puts all addresses, as NAME-worker-0.NAMESPACE.svc:2222, into each task's TF_CONFIG, and
    Linux starts no process with a variable of 128 KiB or more.

    Args:
        namespace: Where it runs; empty where that is not known, for the longest name there is.
    """
    place = namespace or "x" * _LONGEST_NAMESPACE
    addresses = {
        role.job: [f"{spec.name}-{role.job}-{i}.{place}.svc:{PORT}" for i in range(role.replicas)]
        for role in spec.roles
    }
    size = len(json.dumps({"cluster": addresses})) + _REST_BYTES
    if size > _MOST_BYTES:
        mend = "" if namespace else " or give --namespace, whose length counts for every task,"
        raise UserError(
            f"{spec.tasks} tasks: the training operator gives each a TF_CONFIG of some {size} "
            f"bytes, but Linux starts no process with more than {_MOST_BYTES}; use "
            f"--target=jobset, which takes more,{mend} or give a shorter --name or fewer tasks"
        )


def tfjob(spec: JobSpec, volumes: Sequence[Volume] = ()) -> dict[str, Any]:
    """Renders a job.

    The operator sets TF_CONFIG. It restarts a chief whose exit code is 128 or more, which a signal
    leaves; any other ends the job. The others are restarted however they end, since servers that
    saw their chief interrupted end well and the next chief needs them; the operator deletes them
    when the chief has ended.
    """
    if not spec.restarts:
        raise UserError(
            "--restarts=0: the servers of a TFJob are restarted with their chief; give 1 or more, "
            "or use --target=jobset"
        )
    policy = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "backoffLimit": spec.restarts * spec.tasks,  # of all pods together
    }
    if spec.timeout_seconds:
        policy["activeDeadlineSeconds"] = spec.timeout_seconds
    return {
        "apiVersion": f"{TFJOB.group}/{TFJOB.version}",
        "kind": "TFJob",
        "metadata": {"name": spec.name, "labels": {**spec.labels, **MANAGED_BY}},
        "spec": {
            "runPolicy": policy,
            "tfReplicaSpecs": {
                _TYPES[role.job]: {
                    "replicas": role.replicas,
                    "restartPolicy": "ExitCode" if role.job == "chief" else "Always",
                    "template": pod.template(spec, role, volumes, ()),
                }
                for role in spec.roles
            },
        },
    }
