"""The manifests of a deployment: its servers, what they read, their address, number and callers."""

import hashlib
import posixpath
from collections.abc import Mapping, Sequence

from cloud import command_line, job_spec
from cloud.deployment.deployment import Deployment
from cloud.kubernetes import pod
from cloud.kubernetes.kubectl import Json
from cloud.kubernetes.pod import MANAGED_BY, SCRATCH, Volume
from cloud.tfserving.models_config import (
    METRICS_PATH,
    SPECIFIC,
    batching_parameters,
    models_config,
    monitoring_config,
)

REST_PORT = 8501
MODEL = "tfps/model"  # annotation: the version's directory
AUTOSCALER = "HorizontalPodAutoscaler"
_PORTS = {"grpc": 8500, "rest": REST_PORT}
_KIND = {"app.kubernetes.io/name": "tensorflow-serving"}
INSTANCE = "app.kubernetes.io/instance"
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
    return {**_KIND, INSTANCE: name}


def owned(name: str = "") -> dict[str, str]:
    """Labels by which the objects of a deployment, or of all, are found."""
    return {**(selector(name) if name else _KIND), **MANAGED_BY}


def annotations(model: str) -> dict[str, str]:
    """Annotations of a Deployment; `kubectl rollout history` shows the second."""
    return {MODEL: model, "kubernetes.io/change-cause": model}


def callers(pods: Sequence[str], namespaces: Sequence[str]) -> list[Json]:
    """Who may ask the servers, as a NetworkPolicy names them, of labels KEY=value.

    Pods of the servers' own namespace with one of the labels `pods`, and all pods of namespaces
    with one of the labels `namespaces`; without any label every pod of their own namespace.
    """
    found = []
    for flag, kind, texts in (
        ("--allow_from", "podSelector", pods),
        ("--allow_namespace", "namespaceSelector", namespaces),
    ):
        labels = command_line.pairs(flag, texts)
        job_spec.check_labels(labels, flag)
        found += [{kind: {"matchLabels": {key: value}}} for key, value in labels.items()]
    return found or [{"podSelector": {}}]


def manifests(
    deployment: Deployment, callers: Sequence[Json], volumes: Sequence[Volume]
) -> list[Json]:
    """All of a deployment whose memory is known; the NetworkPolicy must be there first."""
    pods, config = selector(deployment.name), _config_map(deployment)
    # TensorFlow Serving asks for no credentials: only callers reach its ports.
    open_ports = [{"protocol": "TCP", "port": port} for port in _PORTS.values()]
    service_ports = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in _PORTS.items()
    ]
    service = {"type": "ClusterIP", "selector": pods, "ports": service_ports}
    budget = {  # nodes are drained one server at a time
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": pods},
    }
    found = [
        pod.network_policy(_metadata(deployment), pods, [{"from": callers, "ports": open_ports}]),
        config,
        _workload(deployment, config, volumes),
        _object("v1", "Service", deployment, service),
        _object("policy/v1", "PodDisruptionBudget", deployment, budget),
    ]
    if deployment.max_replicas > deployment.min_replicas:
        found.append(_object("autoscaling/v2", AUTOSCALER, deployment, _scaling(deployment)))
    return found


def _object(api: str, kind: str, deployment: Deployment, spec: Json) -> Json:
    return pod.manifest(api, kind, _metadata(deployment), spec=spec)


def _metadata(deployment: Deployment) -> Json:
    return {"name": object_name(deployment.name), "labels": _labels(deployment)}


def _labels(deployment: Deployment) -> dict[str, str]:
    return {**deployment.labels, **owned(deployment.name)}


def _config_map(deployment: Deployment) -> Json:
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
    name = f"{object_name(deployment.name)}-{digest}"
    own = {"name": name, "labels": _labels(deployment), "annotations": {MODEL: model.path}}
    return pod.manifest("v1", "ConfigMap", own, immutable=True, data=files)


def _workload(deployment: Deployment, config: Json, volumes: Sequence[Volume]) -> Json:
    """The Deployment; none of the old servers goes before a new one answers."""
    model = deployment.model
    load_seconds = _LOAD_SECONDS + model.variables_bytes // _LOAD_BYTES
    is_fixed = deployment.max_replicas == deployment.min_replicas
    template = {
        "labels": _labels(deployment),
        "annotations": {MODEL: model.path, **pod.prometheus(REST_PORT, METRICS_PATH)},
    }
    spec = {
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
    }
    found = _object("apps/v1", "Deployment", deployment, spec)
    found["metadata"]["annotations"] = annotations(model.path)
    return found


def _pod(
    deployment: Deployment, config: Json, volumes: Sequence[Volume], load_seconds: int
) -> Json:
    account = deployment.service_account
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": kind,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(deployment.name)},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for kind in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]
    claims, mounts = pod.mounted(volumes, {"readOnly": True})
    files = {"name": "config", "mountPath": _FILES, "readOnly": True}
    container = _container(deployment, config["data"], load_seconds)
    return {
        **pod.base(_DRAIN_SECONDS + _END_SECONDS),
        **({"serviceAccountName": account} if account else {}),
        "securityContext": pod.pod_security(),
        **pod.placement(deployment),
        "topologySpreadConstraints": spread,
        "containers": [{**container, "volumeMounts": [files, *mounts]}],
        "volumes": [
            {"name": "config", "configMap": {"name": config["metadata"]["name"]}},
            {"name": "scratch", "emptyDir": {}},
            *claims,
        ],
    }


def _container(deployment: Deployment, files: Mapping[str, str], load_seconds: int) -> Json:
    arguments = [
        f"--port={_PORTS['grpc']}",
        f"--rest_api_port={REST_PORT}",
        f"--model_config_file={posixpath.join(_FILES, _MODELS)}",
        f"--monitoring_config_file={posixpath.join(_FILES, _MONITORING)}",
    ]
    if _BATCHING in files:
        path = posixpath.join(_FILES, _BATCHING)
        arguments += ["--enable_batching=true", f"--batching_parameters_file={path}"]
    arguments += [
        "--enable_model_warmup=true",
        # The version is fixed: one look at the start, and a new pod for another try.
        "--file_system_poll_wait_seconds=0",
        "--max_num_load_retries=0",
    ]
    return {
        "name": "serving",
        "image": deployment.image,
        "command": ["tensorflow_model_server"],
        "args": [pod.literal(argument) for argument in arguments],
        "env": [{"name": "HOME", "value": SCRATCH}],
        "ports": [{"name": name, "containerPort": port} for name, port in _PORTS.items()],
        "resources": pod.resources(deployment),
        "securityContext": pod.container_security(),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_SECONDS)]}}},
        # A server opens its ports once it has loaded the model and warmed it up.
        "startupProbe": _probe(deployment.name, 5, load_seconds // 5),
        "readinessProbe": _probe(deployment.name, 5, 3),
        "livenessProbe": _probe(deployment.name, 20, 6),
    }


def _probe(name: str, period_seconds: int, failures: int) -> Json:
    get = {"path": f"/v1/models/{name}", "port": "rest"}
    return {"httpGet": get, **pod.periods(5, period_seconds, failures)}


def _scaling(deployment: Deployment) -> Json:
    """One server more where those that there are use much of their CPUs."""
    name = object_name(deployment.name)
    target = {"type": "Utilization", "averageUtilization": _CPU_PERCENT}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": deployment.min_replicas,
        "maxReplicas": deployment.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
