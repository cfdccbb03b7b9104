"""Sends manifests to a Kubernetes cluster and asks about the jobs that they made."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from cloud.job_status import JobStatus
from cloud.kubernetes.cluster import KubernetesCluster, RefusedError
from cloud.kubernetes.kind import KubernetesKind
from cloud.kubernetes.pod import MANAGED_BY
from cloud.kubernetes.pod_logs import PodLogs
from cloud.target import Document
from tfps.errors import RunError, UserError

_SUBMISSION = "tfps/submission"  # annotation: which call of `send` made an object


class KubernetesSender:
    """Jobs of one kind in one namespace of a cluster."""

    def __init__(self, kind: KubernetesKind, cluster: KubernetesCluster):
        """Uses a cluster.

        Args:
            kind: JOBSET or TFJOB.
            cluster: The cluster and the namespace.
        """
        self._kind = kind
        self._cluster = cluster
        self._namespace = cluster.namespace
        self._place = (kind.group, kind.version, cluster.namespace, kind.plural)
        self._logs = PodLogs(kind, self._read_log)

    def send(self, documents: Sequence[Document]) -> str:
        """Makes the NetworkPolicy and the job, each once, even if requests have to be repeated.

        The policy comes first, so that no port is open even for a moment. It is then tied to the
        job, with which Kubernetes deletes it.
        """
        submission = uuid.uuid4().hex
        policy, job = (self._own(each, submission) for each in documents)
        name: str = job["metadata"]["name"]
        self._create_policy(name, policy, submission)
        try:
            made = self._create_job(name, job, submission)
        except UserError:  # after any other error the job may be there
            self._delete_policy(name)
            raise
        self._tie(name, made)
        return name

    def status(self, job: str) -> JobStatus:
        """What the cluster says of a job."""
        return self._kind.status(self._get(job))

    def describe(self, job: str) -> Document:
        """The whole object, without who set which field."""
        found = self._get(job)
        found["metadata"].pop("managedFields", None)
        return found

    def list(self) -> Sequence[JobStatus]:
        """The jobs that were submitted by this program, the newest first."""
        selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
        found = self._cluster.call(
            f"list {self._kind.plural}",
            lambda limit: self._cluster.custom_objects.list_namespaced_custom_object(
                *self._place, label_selector=selector, _request_timeout=limit
            ),
        )
        jobs = [self._kind.status(each) for each in found["items"]]
        return sorted(jobs, key=lambda job: job.created, reverse=True)

    def cancel(self, job: str) -> None:
        """Deletes the job and its policy; the pods get their grace."""
        try:
            self._cluster.call(
                f"delete {self._kind.name} {job}",
                lambda limit: self._cluster.custom_objects.delete_namespaced_custom_object(
                    *self._place, job, propagation_policy="Background", _request_timeout=limit
                ),
            )
        except RefusedError as error:
            if error.status != 404:
                raise
            if not self._delete_policy(job):
                raise self._no_such(job) from None
        self._delete_policy(job)

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        """Task and text of the lines that the job's pods have written since the last call."""
        found = self._cluster.call(
            f"list the pods of {job}",
            lambda limit: self._cluster.core.list_namespaced_pod(
                self._namespace,
                label_selector=f"{self._kind.name_label}={job}",
                _request_timeout=limit,
            ),
        )
        return self._logs.new_lines(self._cluster.plain(found)["items"])

    def _own(self, document: Document, submission: str) -> dict[str, Any]:
        """A manifest that says where it goes and which submission it is of."""
        assert isinstance(document, dict)
        own = {"namespace": self._namespace, "annotations": {_SUBMISSION: submission}}
        return {**document, "metadata": {**document["metadata"], **own}}

    def _create_policy(self, name: str, policy: dict[str, Any], submission: str) -> None:
        networking = self._cluster.networking
        try:
            self._cluster.call(
                f"create the NetworkPolicy {name}",
                lambda limit: networking.create_namespaced_network_policy(
                    self._namespace, policy, _request_timeout=limit
                ),
            )
        except RefusedError as error:
            if error.status != 409:
                raise
            found = self._cluster.call(
                f"read the NetworkPolicy {name}",
                lambda limit: networking.read_namespaced_network_policy(
                    name, self._namespace, _request_timeout=limit
                ),
            )
            self._check_own(name, self._cluster.plain(found), submission)

    def _create_job(self, name: str, job: dict[str, Any], submission: str) -> dict[str, Any]:
        try:
            made: dict[str, Any] = self._cluster.call(
                f"create the {self._kind.name} {name}",
                lambda limit: self._cluster.custom_objects.create_namespaced_custom_object(
                    *self._place, job, _request_timeout=limit
                ),
            )
        except RefusedError as error:
            if error.status == 404:
                raise UserError(f"{error}; {self._kind.install} in the cluster") from None
            if error.status != 409:
                raise
            made = self._get(name)
            self._check_own(name, made, submission)
        return made

    def _check_own(self, name: str, found: dict[str, Any], submission: str) -> None:
        """Refuses what is there already, unless a repeated request of this submission made it."""
        annotations = found["metadata"].get("annotations") or {}
        if annotations.get(_SUBMISSION) != submission:
            raise UserError(
                f"there is a {found.get('kind', 'job')} {name} in namespace {self._namespace} "
                f"already; give another --name, or end it with `python -m cloud.submit cancel "
                f"{name} …`"
            )

    def _tie(self, name: str, job: dict[str, Any]) -> None:
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {key: job["metadata"][key] for key in ("name", "uid")}
        try:
            self._cluster.call(
                f"tie the NetworkPolicy {name} to its job",
                lambda limit: self._cluster.networking.patch_namespaced_network_policy(
                    name,
                    self._namespace,
                    {"metadata": {"ownerReferences": [owner]}},
                    _request_timeout=limit,
                ),
            )
        except (RefusedError, RunError) as error:
            raise RunError(
                f"{name} is submitted, but {error}; `python -m cloud.submit cancel {name} …` "
                "deletes both"
            ) from None

    def _delete_policy(self, name: str) -> bool:
        """Deletes a job's policy; returns whether there was one."""
        try:
            self._cluster.call(
                f"delete the NetworkPolicy {name}",
                lambda limit: self._cluster.networking.delete_namespaced_network_policy(
                    name, self._namespace, _request_timeout=limit
                ),
            )
        except RefusedError as error:
            if error.status != 404:
                raise
            return False
        return True

    def _get(self, job: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._cluster.call(
                f"read {self._kind.name} {job}",
                lambda limit: self._cluster.custom_objects.get_namespaced_custom_object(
                    *self._place, job, _request_timeout=limit
                ),
            )
        except RefusedError as error:
            if error.status == 404:
                raise self._no_such(job) from None
            raise
        return found

    def _no_such(self, job: str) -> UserError:
        return UserError(
            f"there is no {self._kind.name} {job} in namespace {self._namespace}; "
            f"`python -m cloud.submit list --target={self._kind.name} …` shows what there is"
        )

    def _read_log(self, pod: str, **options: Any) -> str:
        """A pod's log, empty if the pod has gone or its container has not begun."""
        try:
            answer = self._cluster.call(
                f"read the log of pod {pod}",
                lambda limit: self._cluster.core.read_namespaced_pod_log(
                    pod,
                    self._namespace,
                    _request_timeout=limit,
                    _preload_content=False,  # the client would take some lines for JSON
                    **options,
                ),
            )
        except RefusedError as error:
            if error.status in (400, 404):
                return ""
            raise
        return str(answer.data.decode("utf-8", "backslashreplace"))
