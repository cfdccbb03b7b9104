"""How many servers a deployment has: with its load, and while nodes are drained."""

from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.kubernetes.serving import names

_CPU_PERCENT = 70  # of what a server asks for, at which there is to be one more


def autoscaler(deployment: Deployment) -> dict[str, Any]:
    """Renders what keeps the number of servers between its limits, by their use of CPU."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": names.metadata(deployment),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": names.object_name(deployment.name),
            },
            "minReplicas": deployment.min_replicas,
            "maxReplicas": deployment.max_replicas,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": _CPU_PERCENT},
                    },
                }
            ],
        },
    }


def disruption_budget(deployment: Deployment) -> dict[str, Any]:
    """Renders that nodes are drained in such a way that one server at most is missing."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(deployment),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.selector(deployment.name)},
        },
    }
