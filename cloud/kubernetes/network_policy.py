"""Who may reach the tasks of a job on Kubernetes."""

from collections.abc import Mapping
from typing import Any

from cloud.job_spec import JobSpec
from cloud.kubernetes.pod import MANAGED_BY, metrics_port, tensorflow_ports


def network_policy(spec: JobSpec, pods: Mapping[str, str]) -> dict[str, Any]:
    """Lets a job's own pods reach its TensorFlow servers, and nobody else reach these.

    Who else is in the cluster may ask for the chief's figures, if the job serves them. TensorFlow's
    servers ask for no credentials, so whoever reaches them can run code. The cluster's
    network plugin must enforce policies.
    """
    own = {
        "from": [{"podSelector": {"matchLabels": dict(pods)}}],
        "ports": [{"protocol": "TCP", "port": port} for port in tensorflow_ports(spec)],
    }
    port = metrics_port(spec)
    figures = [{"ports": [{"protocol": "TCP", "port": port}]}] if port else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": spec.name, "labels": {**spec.labels, **MANAGED_BY}},
        "spec": {
            "podSelector": {"matchLabels": dict(pods)},
            "policyTypes": ["Ingress"],
            "ingress": [own, *figures],
        },
    }
