"""The kinds of job that Kubernetes' extensions know."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cloud.target import JobStatus
from tfps.job_dir.task_name import TaskName

_FAILED = "Failed"
_STATES = ("Suspended", "Restarting", "Running")  # the first that is true


@dataclasses.dataclass(frozen=True)
class KubernetesKind:
    """A custom resource whose objects are jobs."""

    name: str
    group: str
    version: str
    plural: str
    name_label: str
    role_label: str
    index_label: str
    success: str
    install: str

    def status(self, job: Mapping[str, Any]) -> JobStatus:
        """Sums up an object of this kind, as the API has it."""
        metadata, status = job["metadata"], job.get("status") or {}
        true = {
            each["type"]: each.get("message", "")
            for each in status.get("conditions") or []
            if each["status"] == "True"
        }
        ready = any(each.get("ready") for each in status.get("replicatedJobsStatus") or [])
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
        role, index = labels.get(self.role_label, "pod"), labels.get(self.index_label, "")
        return TaskName(role, int(index)).label if index.isdigit() else role


JOBSET = KubernetesKind(
    name="jobset",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    name_label="jobset.sigs.k8s.io/jobset-name",
    role_label="jobset.sigs.k8s.io/replicatedjob-name",
    index_label="jobset.sigs.k8s.io/job-index",
    success="Completed",
    install="install JobSet (https://jobset.sigs.k8s.io)",
)
TFJOB = KubernetesKind(
    name="tfjob",
    group="kubeflow.org",
    version="v1",
    plural="tfjobs",
    name_label="training.kubeflow.org/job-name",
    role_label="training.kubeflow.org/replica-type",
    index_label="training.kubeflow.org/replica-index",
    success="Succeeded",
    install="install Kubeflow's training operator 1.9, or use --target=jobset",
)
