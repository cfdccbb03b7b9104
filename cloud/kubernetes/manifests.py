"""A job's manifests: JobSet, TrainJob or TFJob, NetworkPolicy, and a large cluster's ConfigMap."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from cloud import cluster_in_file, job_spec
from cloud.job_spec import JobSpec, Role
from cloud.kubernetes import pod
from cloud.kubernetes.kubectl import Json
from cloud.kubernetes.pod import CONTAINER, MANAGED_BY, PORT, Volume
from cloud.target import JobStatus
from tfps.cluster.spec import TF_CONFIG, TF_CONFIG_FILE
from tfps.cluster.tf_config import MOST_BYTES
from tfps.errors import EXIT_BUG, EXIT_RUN, EXIT_USER, UserError
from tfps.job_dir.task_name import TaskName

_KEPT_SECONDS = 7 * 24 * 3600  # with its pods' logs, after its end
_MOST_RESTARTS = 2**31 - 1
_DIRECTORY, _FILE = "/etc/tfps", "cluster.json"  # of the description of a large cluster
_FAILED = "Failed"
_COMPLETION = "batch.kubernetes.io/job-completion-index"
_STATES = ("Suspended", "Restarting", "Running")  # the first that is true
_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_LONGEST_NAMESPACE = 63
_REST_BYTES = 100  # of TF_CONFIG, next to the cluster
_STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


@dataclasses.dataclass(frozen=True)
class KubernetesKind:
    """A custom resource whose objects are jobs."""

    name: str  # the value of --target, and the extension's name
    api: str  # group and version
    resource: str  # for kubectl
    # Labels of every pod: the job's name; chief, worker, ps or evaluator; the index in the role.
    name_label: str
    role_label: str
    index_label: str
    success: str  # the condition of a job that has ended well
    install: str  # how to get the extension
    container: str = CONTAINER  # of every pod
    parts: tuple[str, ...] = ()  # further resources that a job has by its name
    has_nodes: bool = False  # whether all workers are pods of one Job

    def status(self, job: Json) -> JobStatus:
        """Sums up an object of this kind, as the API has it."""
        metadata, status = job["metadata"], job.get("status") or {}
        true = {
            each["type"]: each.get("message", "")
            for each in status.get("conditions") or []
            if each["status"] == "True"
        }
        jobs = status.get("replicatedJobsStatus") or status.get("jobsStatus") or []
        ready = any(each.get("ready") for each in jobs)
        states = (self.success, _FAILED, *_STATES)
        state = next((each for each in states if each in true), "Running" if ready else "Pending")
        return JobStatus(
            name=metadata["name"],
            title=f"{self.name} {metadata['name']}",
            state=state,
            created=str(metadata.get("creationTimestamp", "")),
            has_ended=state in (self.success, _FAILED),
            is_success=state == self.success,
            message=true.get(_FAILED, ""),
        )

    def task(self, labels: Mapping[str, str]) -> str:
        """The name of a pod's task for people, such as "worker 0"."""
        role = labels.get(self.role_label, "pod")
        index = labels.get(self.index_label_of(role), "")
        return TaskName(role, int(index)).label if index.isdigit() else role

    def index_label_of(self, role: str) -> str:
        """The label of a role's pods that has their index."""
        return _COMPLETION if self.has_nodes and role == "worker" else self.index_label


JOBSET = KubernetesKind(  # Kubernetes' own kind of job with several roles, 0.10 or newer
    name="jobset",
    api="jobset.x-k8s.io/v1alpha2",
    resource="jobsets.v1alpha2.jobset.x-k8s.io",
    name_label="jobset.sigs.k8s.io/jobset-name",
    role_label="jobset.sigs.k8s.io/replicatedjob-name",
    index_label="jobset.sigs.k8s.io/job-index",
    success="Completed",
    install="install JobSet (https://jobset.sigs.k8s.io)",
)
TRAINJOB = dataclasses.replace(  # of Kubeflow Trainer 2, which makes a JobSet of the same name
    JOBSET,
    name="trainjob",
    api="trainer.kubeflow.org/v1alpha1",
    resource="trainjobs.v1alpha1.trainer.kubeflow.org",
    success="Complete",
    install="install Kubeflow Trainer 2, or use --target=jobset",
    container="node",
    parts=("trainingruntimes.v1alpha1.trainer.kubeflow.org",),
    has_nodes=True,
)
TFJOB = KubernetesKind(  # of Kubeflow's training operator 1.9
    name="tfjob",
    api="kubeflow.org/v1",
    resource="tfjobs.v1.kubeflow.org",
    name_label="training.kubeflow.org/job-name",
    role_label="training.kubeflow.org/replica-type",
    index_label="training.kubeflow.org/replica-index",
    success="Succeeded",
    install="install Kubeflow's training operator 1.9, or use --target=jobset",
)


def jobset(spec: JobSpec, volumes: Sequence[Volume] = ()) -> Json:
    """A JobSet: every task is a Job of one pod."""
    own = jobset_spec(spec, volumes, JOBSET)
    return pod.manifest(JOBSET.api, "JobSet", metadata_of(spec, is_job=True), spec=own)


def jobset_spec(spec: JobSpec, volumes: Sequence[Volume], kind: KubernetesKind) -> Json:
    """What a JobSet is to do.

    So Kubernetes replaces a lost pod alone, under the same host name. JobSet's own RestartJob is
    not used: it is off unless a cluster's administrator turns it on. A chief that dies takes all
    tasks with it: servers that saw it interrupted have ended well by then, and a Job that ended
    well is not started again.
    """
    rules: list[Json] = [  # a Job that fails otherwise restarts all tasks
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
    ]
    jobs = [
        {
            "name": role.job,
            "replicas": 1 if _is_of_nodes(role, kind) else role.replicas,
            "template": {"spec": _job(spec, role, volumes, kind)},
        }
        for role in spec.roles
    ]
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["chief"]},
        "failurePolicy": {"maxRestarts": spec.restarts, "rules": rules},
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "replicatedJobs": jobs,
    }


def _is_of_nodes(role: Role, kind: KubernetesKind) -> bool:
    return kind.has_nodes and role.job == "worker"


def _job(spec: JobSpec, role: Role, volumes: Sequence[Volume], kind: KubernetesKind) -> Json:
    environment, files = _environment(spec, role, kind), _files(spec, kind)
    template = pod.template(spec, role, volumes, environment, files, kind.container)
    template["spec"]["restartPolicy"] = "OnFailure" if role.job == "evaluator" else "Never"
    job: Json = {
        "parallelism": role.replicas if _is_of_nodes(role, kind) else 1,
        "completions": role.replicas if _is_of_nodes(role, kind) else 1,
        "completionMode": "Indexed",
        **_restarts(spec, role, kind),
    }
    if role.job == "chief" and spec.timeout_seconds:
        job["activeDeadlineSeconds"] = spec.timeout_seconds
    return {**job, "template": template}


def _restarts(spec: JobSpec, role: Role, kind: KubernetesKind) -> Json:
    """When a Job makes a new pod, and when it fails.

    A chief that ended by itself has said why, and would end so again; one that was killed may be
    restarted. A server is restarted unless its input is bad. Pods that Kubernetes itself took away
    (a drained node, a spot machine) do not count. An evaluator never ends the job.
    """
    if role.job == "evaluator":
        return {"backoffLimit": _MOST_RESTARTS}
    is_chief = role.job == "chief"
    for_good = [EXIT_BUG, EXIT_USER, EXIT_RUN] if is_chief else [EXIT_USER]
    codes = {"containerName": kind.container, "operator": "In", "values": for_good}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    rules = [
        {"action": "FailJob", "onExitCodes": codes},
        {"action": "FailJob" if is_chief else "Ignore", "onPodConditions": disrupted},
    ]
    limit = "backoffLimitPerIndex" if _is_of_nodes(role, kind) else "backoffLimit"
    failed = {"maxFailedIndexes": 0} if _is_of_nodes(role, kind) else {}
    return {
        limit: 0 if is_chief else spec.restarts,
        **failed,
        "podReplacementPolicy": "Failed",  # never two pods under one name
        "podFailurePolicy": {"rules": rules},
    }


def _cluster(spec: JobSpec, kind: KubernetesKind) -> dict[str, list[str]]:
    """The addresses of a JobSet's tasks, by job: those of its pods, with Job and completion."""

    def host(role: Role, index: int) -> str:
        place = f"0-{index}" if _is_of_nodes(role, kind) else f"{index}-0"
        return f"{spec.name}-{role.job}-{place}.{spec.name}:{PORT}"

    return {role.job: [host(role, i) for i in range(role.replicas)] for role in spec.roles}


def _environment(spec: JobSpec, role: Role, kind: KubernetesKind) -> list[Json]:
    name = {"name": "JOBSET_NAME", "value": spec.name}
    if spec.tasks == 1:
        return [name]
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{kind.index_label_of(role.job)}']"}}
    # Kubernetes puts the index in, since all Jobs of a role have one template.
    task = f'"task": {{"type": "{role.job}", "index": $(JOB_INDEX)}}'
    found: list[Json] = [name, {"name": "JOB_INDEX", "valueFrom": field}]
    if has_config_map(spec, kind):
        return [
            *found,
            {"name": TF_CONFIG, "value": f"{{{task}}}"},
            {"name": TF_CONFIG_FILE, "value": f"{_DIRECTORY}/{_FILE}"},
        ]
    described = json.dumps(_cluster(spec, kind))
    return [*found, {"name": TF_CONFIG, "value": f'{{"cluster": {described}, {task}}}'}]


def has_config_map(spec: JobSpec, kind: KubernetesKind) -> bool:
    """Whether a JobSet's cluster is too long for its tasks' environment."""
    return spec.tasks > 1 and cluster_in_file.is_needed(json.dumps(_cluster(spec, kind)))


def config_map_name(job: str) -> str:
    return f"{job}-cluster"


def config_map(spec: JobSpec, kind: KubernetesKind) -> Json:
    """The description of a large cluster, as a file in each of its pods."""
    text = cluster_in_file.text(_cluster(spec, kind))
    if len(text) > MOST_BYTES:
        raise UserError(
            f"{spec.tasks} tasks: their addresses are {len(text)} bytes, but a ConfigMap of "
            f"Kubernetes holds {MOST_BYTES}; ask for fewer tasks, or give a shorter --name"
        )
    metadata = {**metadata_of(spec), "name": config_map_name(spec.name)}
    return pod.manifest("v1", "ConfigMap", metadata, immutable=True, data={_FILE: text})


def _files(spec: JobSpec, kind: KubernetesKind) -> tuple[Json, Json] | None:
    """The ConfigMap as a volume of a pod, and its mount in the container."""
    if not has_config_map(spec, kind):
        return None
    mount = {"name": "cluster", "mountPath": _DIRECTORY, "readOnly": True}
    return {"name": "cluster", "configMap": {"name": config_map_name(spec.name)}}, mount


def training_runtime(spec: JobSpec, volumes: Sequence[Volume] = ()) -> Json:
    """A JobSet for a TrainJob alone, in which the workers are the trainer's nodes.

    Kubeflow Trainer 2 has no runtime for TensorFlow. It wants the nodes of a trainer to be the pods
    of one Job; the chief and the ps keep a Job for each task.
    """
    own = jobset_spec(spec, volumes, TRAINJOB)
    nodes = spec.role("worker") or spec.roles[0]
    for job in own["replicatedJobs"]:
        if job["name"] == nodes.job:
            job["template"] = {"metadata": {"labels": _STEP}, **job["template"]}
    of_runtime = {"mlPolicy": {"numNodes": nodes.replicas}, "template": {"spec": own}}
    return pod.manifest(TRAINJOB.api, "TrainingRuntime", metadata_of(spec), spec=of_runtime)


def trainjob(spec: JobSpec) -> Json:
    """The TrainJob, of whose name its JobSet is."""
    group = TRAINJOB.api.partition("/")[0]
    reference = {"apiGroup": group, "kind": "TrainingRuntime", "name": spec.name}
    metadata = metadata_of(spec, is_job=True)
    return pod.manifest(TRAINJOB.api, "TrainJob", metadata, spec={"runtimeRef": reference})


def tfjob(spec: JobSpec, volumes: Sequence[Volume] = ()) -> Json:
    """A TFJob, whose operator sets TF_CONFIG.

    It restarts a chief whose exit code is 128 or more, which a signal leaves; any other ends the
    job. The others are restarted however they end: servers that saw their chief interrupted end
    well, and the next chief needs them. The operator deletes them when the chief has ended.
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
    roles = {
        _TYPES[role.job]: {
            "replicas": role.replicas,
            "restartPolicy": "ExitCode" if role.job == "chief" else "Always",
            "template": pod.template(spec, role, volumes),
        }
        for role in spec.roles
    }
    own = {"runPolicy": policy, "tfReplicaSpecs": roles}
    return pod.manifest(TFJOB.api, "TFJob", metadata_of(spec, is_job=True), spec=own)


def check_tfjob_size(spec: JobSpec, namespace: str) -> None:
    """Refuses more tasks than the operator can describe in a variable.

    It puts all addresses, as NAME-worker-0.NAMESPACE.svc:2222, into each task's TF_CONFIG. An
    empty namespace is not known yet, and counts as the longest.
    """
    place = namespace or "x" * _LONGEST_NAMESPACE
    addresses = {
        role.job: [f"{spec.name}-{role.job}-{i}.{place}.svc:{PORT}" for i in range(role.replicas)]
        for role in spec.roles
    }
    size = len(json.dumps({"cluster": addresses})) + _REST_BYTES
    if size > job_spec.MOST_BYTES:
        hint = "" if namespace else " or give --namespace, whose length counts for every task,"
        raise UserError(
            f"{spec.tasks} tasks: the training operator gives each a TF_CONFIG of some {size} "
            f"bytes, but Linux starts no process with more than {job_spec.MOST_BYTES}; use "
            f"--target=jobset, which takes more,{hint} or give a shorter --name or fewer tasks"
        )


def network_policy(spec: JobSpec, pods: Json) -> Json:
    """Lets a job's own pods, known by their labels, reach its TensorFlow servers, and nobody else.

    TensorFlow's servers ask for no credentials: all that reach them can run code. All of the
    cluster may ask for the chief's figures, if the job serves them.
    """
    port = pod.metrics_port(spec)
    ingress = [{"ports": _open([port])}] if port else []
    own = {"from": [{"podSelector": {"matchLabels": dict(pods)}}]}
    servers = {**own, "ports": _open(pod.tensorflow_ports(spec))}
    return pod.network_policy(metadata_of(spec), pods, [servers, *ingress])


def _open(ports: Sequence[int]) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def metadata_of(spec: JobSpec, is_job: bool = False) -> Json:
    """Name and labels of the job, or of what belongs to it."""
    labels = spec.labels if is_job else pod.labels_of_parts(spec)
    return {"name": spec.name, "labels": {**labels, **MANAGED_BY}}
