"""The servers of a deployment: a Deployment, and the ConfigMap that tells them of the model."""

import hashlib
import posixpath
from collections.abc import Sequence
from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.kubernetes import hardware
from cloud.kubernetes.pod import literal
from cloud.kubernetes.serving import names
from cloud.kubernetes.volume import SCRATCH, Volume
from cloud.tfserving.models_config import (
    METRICS_PATH,
    SPECIFIC,
    batching_parameters,
    models_config,
    monitoring_config,
)

CONTAINER = "serving"
_FILES = "/etc/tfserving"
_MODELS, _MONITORING, _BATCHING = "models.config", "monitoring.config", "batching.config"
_KEPT_REVISIONS = 10  # which a rollback can go back to
_DRAIN_SECONDS = 15  # after a pod has left the Service, for requests that are on their way
_END_SECONDS = 30
_LOAD_SECONDS = 600  # for the image and a small model
_LOAD_BYTES = 20 << 20  # of a model each further second


def config_map(deployment: Deployment) -> dict[str, Any]:
    """Renders what servers are told of the model.

    Its name has a checksum of its content, and it never changes: so each revision of the servers
    keeps its own, and who goes back to a revision goes back to its version of the model.
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
            "name": f"{names.object_name(deployment.name)}-{digest}",
            "labels": names.labels(deployment),
            "annotations": {names.MODEL: model.path},
        },
        "immutable": True,
        "data": files,
    }


def workload(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume]
) -> dict[str, Any]:
    """Renders the servers.

    New ones come first: none of the old ones goes before a new one answers, so that a model that
    cannot be loaded takes nothing away.

    Returns:
        A Deployment; without `replicas` where their number changes by itself.
    """
    selector = names.selector(deployment.name)
    load_seconds = _load_seconds(deployment)
    replicas = {"replicas": deployment.min_replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": names.object_name(deployment.name),
            "labels": names.labels(deployment),
            "annotations": names.annotations(deployment.model.path),
        },
        "spec": {
            **(replicas if deployment.max_replicas == deployment.min_replicas else {}),
            "revisionHistoryLimit": _KEPT_REVISIONS,
            "progressDeadlineSeconds": load_seconds + 120,
            "selector": {"matchLabels": selector},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
            },
            "template": _template(deployment, config, volumes, load_seconds),
        },
    }


def _template(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume], load_seconds: int
) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": names.labels(deployment),
            "annotations": {
                names.MODEL: deployment.model.path,
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(names.REST_PORT),
                "prometheus.io/path": METRICS_PATH,
            },
        },
        "spec": _pod(deployment, config, volumes, load_seconds),
    }


def _pod(
    deployment: Deployment, config: dict[str, Any], volumes: Sequence[Volume], load_seconds: int
) -> dict[str, Any]:
    account = deployment.service_account
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The server is then not process 1, which the kernel shields from SIGTERM by default.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": _DRAIN_SECONDS + _END_SECONDS,
        **({"serviceAccountName": account} if account else {}),
        "securityContext": hardware.pod_security(),
        **hardware.placement(deployment),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": kind,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": names.selector(deployment.name)},
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
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": _FILES, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH},
    ]
    mounts += [
        {"name": f"volume-{i}", "mountPath": volume.path, "readOnly": True}
        for i, volume in enumerate(volumes)
    ]
    return {
        "name": CONTAINER,
        "image": deployment.image,
        "command": ["tensorflow_model_server"],
        "args": [literal(argument) for argument in _arguments(config["data"])],
        "env": [{"name": "HOME", "value": SCRATCH}],
        "ports": [
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "rest", "containerPort": names.REST_PORT},
        ],
        "resources": hardware.resources(deployment),
        "securityContext": hardware.container_security(),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_SECONDS)]}}},
        **_probes(deployment.name, load_seconds),
        "volumeMounts": mounts,
    }


def _arguments(files: dict[str, str]) -> list[str]:
    batching = [
        "--enable_batching=true",
        f"--batching_parameters_file={posixpath.join(_FILES, _BATCHING)}",
    ]
    return [
        f"--port={names.GRPC_PORT}",
        f"--rest_api_port={names.REST_PORT}",
        f"--model_config_file={posixpath.join(_FILES, _MODELS)}",
        f"--monitoring_config_file={posixpath.join(_FILES, _MONITORING)}",
        *(batching if _BATCHING in files else []),
        "--enable_model_warmup=true",
        # The version is fixed: one look at the start, and a new pod for another try.
        "--file_system_poll_wait_seconds=0",
        "--max_num_load_retries=0",
    ]


def _probes(name: str, load_seconds: int) -> dict[str, Any]:
    """A server opens its ports once it has loaded the model and warmed it up."""

    def probe(period_seconds: int, failures: int) -> dict[str, Any]:
        return {
            "httpGet": {"path": f"/v1/models/{name}", "port": "rest"},
            "timeoutSeconds": 5,
            "periodSeconds": period_seconds,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": probe(5, load_seconds // 5),
        "readinessProbe": probe(5, 3),
        "livenessProbe": probe(20, 6),
    }


def _load_seconds(deployment: Deployment) -> int:
    return _LOAD_SECONDS + deployment.model.variables_bytes // _LOAD_BYTES
