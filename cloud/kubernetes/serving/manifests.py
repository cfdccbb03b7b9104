"""The manifests of a deployment: its servers, what they read, their address, number and callers."""

import dataclasses
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from cloud import command_line
from cloud.deployment.deployment import Deployment
from cloud.kubernetes import pod
from cloud.kubernetes.pod import MANAGED_BY, SCRATCH, Volume
from cloud.tfserving.models_config import (
    METRICS_PATH,
    SPECIFIC,
    batching_parameters,
    models_config,
    monitoring_config,
)
from tfps.errors import UserError

REST_PORT = 8501
MODEL = "tfps/model"  # annotation: the version's directory
AUTOSCALER = "HorizontalPodAutoscaler"
_PORTS = {"grpc": 8500, "rest": REST_PORT}
_KIND = {"app.kubernetes.io/name": "tensorflow-serving"}
_INSTANCE = "app.kubernetes.io/instance"
_KEY = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_FILES = "/etc/tfserving"
_MODELS, _MONITORING, _BATCHING = "models.config", "monitoring.config", "batching.config"
_KEPT_REVISIONS = 10  # which a rollback can go back to
_DRAIN_SECONDS = 15  # after a pod has left the Service, for requests that are on their way
_END_SECONDS = 30
_LOAD_SECONDS = 600  # for the image and a small model
_LOAD_BYTES = 20 << 20  # of a model each further second
_CPU_PERCENT = 70  # of what a server asks for, from which one more is added


def object_name(name: str) -> str:
    """The name of a deployment's objects; a job may have the deployment's own."""
    return f"{name}-serving"


def selector(name: str) -> dict[str, str]:
    """Labels that a deployment's pods have, and no others."""
    return {**_KIND, _INSTANCE: name}


def owned(name: str = "") -> dict[str, str]:
    """Labels by which the objects of a deployment, or of all, are found."""
    return {**_KIND, **MANAGED_BY, **({_INSTANCE: name} if name else {})}


def deployment_of(found: Mapping[str, Any]) -> str:
    """The name of the deployment that an object is of."""
    return str(found["metadata"]["labels"].get(_INSTANCE, ""))


def annotations(model: str) -> dict[str, str]:
    """Annotations of a Deployment; `kubectl rollout history` shows the second."""
    return {MODEL: model, "kubernetes.io/change-cause": model}


@dataclasses.dataclass(frozen=True)
class Callers:
    """Who may ask the servers, by label; without any, every pod of their own namespace."""

    pods: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of their own namespace
    namespaces: Mapping[str, str] = dataclasses.field(default_factory=dict)  # all pods of these

    @classmethod
    def parse(cls, pods: Sequence[str], namespaces: Sequence[str]) -> Self:
        """Reads KEY=value of --allow_from and --allow_namespace."""
        return cls(_labels("--allow_from", pods), _labels("--allow_namespace", namespaces))

    @property
    def peers(self) -> list[dict[str, Any]]:
        """As a NetworkPolicy names them."""
        pods = [{"podSelector": {"matchLabels": {k: v}}} for k, v in self.pods.items()]
        rooms = [{"namespaceSelector": {"matchLabels": {k: v}}} for k, v in self.namespaces.items()]
        return [*pods, *rooms] or [{"podSelector": {}}]


def _labels(flag: str, texts: Sequence[str]) -> dict[str, str]:
    found = command_line.pairs(flag, texts)
    for key, value in found.items():
        if not re.fullmatch(_KEY, key) or not re.fullmatch(_VALUE, value):
            raise UserError(
                f"{flag}={key}={value}: write a label of Kubernetes, as in app=frontend"
            )
    return found


def manifests(
    deployment: Deployment, callers: Callers, volumes: Sequence[Volume]
) -> list[dict[str, Any]]:
    """All of a deployment whose memory is known; the NetworkPolicy must be there first."""
    config = _config_map(deployment)
    found = [
        _network_policy(deployment, callers),
        config,
        _workload(deployment, config, volumes),
        _service(deployment),
        _disruption_budget(deployment),
    ]
    if deployment.max_replicas > deployment.min_replicas:
        found.append(_autoscaler(deployment))
    return found


def _network_policy(deployment: Deployment, callers: Callers) -> dict[str, Any]:
    """Lets callers reach the servers' ports: TensorFlow Serving asks for no credentials."""
    ports = [{"protocol": "TCP", "port": port} for port in _PORTS.values()]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(deployment),
        "spec": {
            "podSelector": {"matchLabels": selector(deployment.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": callers.peers, "ports": ports}],
        },
    }


def _config_map(deployment: Deployment) -> dict[str, Any]:
    """The files that the servers read.

    Its name has a checksum of its content, and it never changes: so each revision of the servers
    keeps its own, and a rollback to a revision is one to its version of the model.
    """
    model = deployment.model
    files = {
        _MODELS: models_config(deployment.name, model.base, SPECIFIC, [model.version]),
        _MONITORING: monitoring_config(),
    }
    if deployment.max_batch_size:
        files[_BATCHING] = batching_parameters(deployment.max_batch_size)
    digest = hashlib.sha256("\0".join(sum(files.items(), ())).encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{object_name(deployment.name)}-{digest}",
            "labels": _all_labels(deployment),
            "annotations": {MODEL: model.path},
        },
        "immutable": True,
        "data": files,
    }


def _workload(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume]
) -> dict[str, Any]:
    """The servers: none of the old ones goes before a new one answers."""
    load_seconds = _LOAD_SECONDS + deployment.model.variables_bytes // _LOAD_BYTES
    is_fixed = deployment.max_replicas == deployment.min_replicas
    template = {
        "labels": _all_labels(deployment),
        "annotations": {
            MODEL: deployment.model.path,
            **pod.prometheus(REST_PORT, METRICS_PATH),
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **_metadata(deployment),
            "annotations": annotations(deployment.model.path),
        },
        "spec": {
            **({"replicas": deployment.min_replicas} if is_fixed else {}),
            "revisionHistoryLimit": _KEPT_REVISIONS,
            "progressDeadlineSeconds": load_seconds + 120,
            "selector": {"matchLabels": selector(deployment.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
            },
            "template": {
                "metadata": template,
                "spec": _pod(deployment, config, volumes, load_seconds),
            },
        },
    }


def _pod(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume], load_seconds: int
) -> dict[str, Any]:
    account = deployment.service_account
    return {
        **pod.base(_DRAIN_SECONDS + _END_SECONDS),
        **({"serviceAccountName": account} if account else {}),
        "securityContext": pod.pod_security(),
        **pod.placement(deployment),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": kind,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(deployment.name)},
                "matchLabelKeys": ["pod-template-hash"],
            }
            for kind in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ],
        "containers": [_container(deployment, config, volumes, load_seconds)],
        "volumes": [
            {"name": "config", "configMap": {"name": config["metadata"]["name"]}},
            {"name": "scratch", "emptyDir": {}},
            *(
                {
                    "name": f"volume-{i}",
                    "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": True},
                }
                for i, volume in enumerate(volumes)
            ),
        ],
    }


def _container(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume], load_seconds: int
) -> dict[str, Any]:
    return {
        "name": "serving",
        "image": deployment.image,
        "command": ["tensorflow_model_server"],
        "args": [pod.literal(argument) for argument in _arguments(config["data"])],
        "env": [{"name": "HOME", "value": SCRATCH}],
        "ports": [{"name": name, "containerPort": port} for name, port in _PORTS.items()],
        "resources": pod.resources(deployment),
        "securityContext": pod.container_security(),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_SECONDS)]}}},
        # A server opens its ports once it has loaded the model and warmed it up.
        "startupProbe": _probe(deployment.name, 5, load_seconds // 5),
        "readinessProbe": _probe(deployment.name, 5, 3),
        "livenessProbe": _probe(deployment.name, 20, 6),
        "volumeMounts": [
            {"name": "config", "mountPath": _FILES, "readOnly": True},
            {"name": "scratch", "mountPath": SCRATCH},
            *(
                {"name": f"volume-{i}", "mountPath": volume.path, "readOnly": True}
                for i, volume in enumerate(volumes)
            ),
        ],
    }


def _arguments(files: dict[str, str]) -> list[str]:
    batching = [
        "--enable_batching=true",
        f"--batching_parameters_file={posixpath.join(_FILES, _BATCHING)}",
    ]
    return [
        f"--port={_PORTS['grpc']}",
        f"--rest_api_port={REST_PORT}",
        f"--model_config_file={posixpath.join(_FILES, _MODELS)}",
        f"--monitoring_config_file={posixpath.join(_FILES, _MONITORING)}",
        *(batching if _BATCHING in files else []),
        "--enable_model_warmup=true",
        # The version is fixed: one look at the start, and a new pod for another try.
        "--file_system_poll_wait_seconds=0",
        "--max_num_load_retries=0",
    ]


def _probe(name: str, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/v1/models/{name}", "port": "rest"},
        "timeoutSeconds": 5,
        "periodSeconds": period_seconds,
        "failureThreshold": failures,
    }


def _service(deployment: Deployment) -> dict[str, Any]:
    """The address, within the cluster, of all servers that answer."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(deployment),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(deployment.name),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in _PORTS.items()
            ],
        },
    }


def _disruption_budget(deployment: Deployment) -> dict[str, Any]:
    """Lets nodes be drained one server at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(deployment),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(deployment.name)},
        },
    }


def _autoscaler(deployment: Deployment) -> dict[str, Any]:
    """Keeps the number of servers between its limits, by their use of CPU."""
    utilization = {"type": "Utilization", "averageUtilization": _CPU_PERCENT}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": AUTOSCALER,
        "metadata": _metadata(deployment),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": object_name(deployment.name),
            },
            "minReplicas": deployment.min_replicas,
            "maxReplicas": deployment.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}],
        },
    }


def _metadata(deployment: Deployment) -> dict[str, Any]:
    return {"name": object_name(deployment.name), "labels": _all_labels(deployment)}


def _all_labels(deployment: Deployment) -> dict[str, str]:
    return {**deployment.labels, **selector(deployment.name), **MANAGED_BY}
