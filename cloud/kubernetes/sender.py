"""Sends manifests to a Kubernetes cluster and asks about the jobs that they made."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from cloud.kubernetes.belongings import Belongings
from cloud.kubernetes.cluster import KubernetesCluster, RefusedError
from cloud.kubernetes.kind import KubernetesKind
from cloud.kubernetes.pod import MANAGED_BY
from cloud.kubernetes.pod_logs import PodLogs
from cloud.target import JobStatus, Request
from tfps.errors import RunError, UserError

_SUBMISSION = "tfps/submission"  # annotation: which call of `send` made an object


class KubernetesSender:
    """Jobs of one kind in one namespace of a cluster."""

    def __init__(self, kind: KubernetesKind, cluster: KubernetesCluster):
        self._kind = kind
        self._cluster = cluster
        self._belongings = Belongings(cluster)
        self._namespace = cluster.namespace
        self._place = (kind.group, kind.version, cluster.namespace, kind.plural)
        self._logs = PodLogs(kind, self._read_log)

    def send(self, requests: Sequence[Request]) -> str:
        """Makes what belongs to the job and the job, each once, even if requests are repeated.

        The policy comes first, so that no port is open even for a moment. All is then tied to the
        job, with which Kubernetes deletes it.
        """
        submission = uuid.uuid4().hex
        *belongings, job = (self._own(each, submission) for each in requests)
        name: str = job["metadata"]["name"]
        own: list[tuple[str, str]] = []
        try:
            for each in belongings:
                self._create(name, each, submission)
                own.append((each["kind"], each["metadata"]["name"]))
            made = self._create_job(name, job, submission)
        except UserError:  # after any other error the job may be there
            for kind, belonging in own:
                self._belongings.delete(kind, belonging)
            raise
        for kind, belonging in own:
            self._tie(kind, belonging, made)
        return name

    def status(self, job: str) -> JobStatus:
        """What the cluster says of a job."""
        return self._kind.status(self._get(job))

    def describe(self, job: str) -> Request:
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
        """Deletes the job, and with it what belongs to it; the pods get their grace."""
        try:
            self._cluster.call(
                f"delete {self._kind.name} {job}",
                lambda limit: self._cluster.custom_objects.delete_namespaced_custom_object(
                    *self._place, job, propagation_policy="Background", _request_timeout=limit
                ),
            )
            was_there = True
        except RefusedError as error:
            if error.status != 404:
                raise
            was_there = False
        # Kubernetes deletes them too, unless the program that made them was interrupted.
        left = [self._belongings.delete(*each) for each in self._belongings.names(job)]
        if not was_there and not any(left):
            raise self._no_such(job)

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

    def _own(self, manifest: Request, submission: str) -> dict[str, Any]:
        """A manifest that says where it goes and which submission it is of."""
        assert isinstance(manifest, dict)
        own = {"namespace": self._namespace, "annotations": {_SUBMISSION: submission}}
        return {**manifest, "metadata": {**manifest["metadata"], **own}}

    def _create(self, job: str, manifest: dict[str, Any], submission: str) -> None:
        try:
            self._belongings.create(manifest)
        except RefusedError as error:
            if error.status != 409:
                raise
            found = self._belongings.read(manifest["kind"], manifest["metadata"]["name"])
            self._check_own(job, found, submission)

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

    def _tie(self, kind: str, name: str, job: dict[str, Any]) -> None:
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {key: job["metadata"][key] for key in ("name", "uid")}
        try:
            self._belongings.tie(kind, name, owner)
        except (RefusedError, RunError) as error:
            raise RunError(
                f"{owner['name']} is submitted, but {error}; `python -m cloud.submit cancel "
                f"{owner['name']} …` deletes all of it"
            ) from None

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
