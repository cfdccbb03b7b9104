"""Sends manifests to a Kubernetes cluster and asks about the jobs that they made."""

import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence

from cloud.kubernetes.kubectl import Json, Kubectl, RefusedError, documents, selected
from cloud.kubernetes.manifests import KubernetesKind, config_map_name
from cloud.kubernetes.pod import MANAGED_BY
from cloud.remote_target import LABELS, said, teller
from cloud.target import JobStatus, Request
from tfps.errors import RunError, UserError

_SUBMISSION = "tfps/submission"  # annotation: which call of `send` made an object
_NOT_INSTALLED = re.compile("no matches for kind|could not find the requested resource")
_OVERLAP_SECONDS = 30  # by which clocks may differ
_NOT_STARTED = re.compile("is waiting to start|does not have a host assigned")
# Of `kubectl logs --prefix --timestamps`.
_LINE = re.compile(r"\[pod/([^/\]]+)/[^\]]+\] (\d{4}-\S+) ?(.*)", re.DOTALL)


class KubernetesSender:
    """Jobs of one kind in one namespace of a cluster."""

    def __init__(self, kind: KubernetesKind, kubectl: Kubectl):
        self._kind = kind
        self._kubectl = kubectl
        self._logs = _PodLogs(kind, kubectl)

    def send(self, requests: Sequence[Request]) -> str:
        """Makes what belongs to the job, then the job, each once, even if commands are repeated.

        The policy comes first, so that no port is open even for a moment. All is then tied to the
        job: Kubernetes deletes it with the job.
        """
        submission = uuid.uuid4().hex
        made: list[Json] = []
        try:
            for each in requests:
                made.append(self._create(each, submission))
        except UserError:  # after any other error the job may be there
            if made:
                self._kubectl.delete("--filename=-", stdin=documents(made))
            raise
        *owned, job = made
        name: str = job["metadata"]["name"]
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {key: job["metadata"][key] for key in ("name", "uid")}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        try:
            how = ("--type=merge", f"--patch={patch}")
            self._kubectl.run("patch", *how, "--filename=-", stdin=documents(owned))
        except (RefusedError, RunError) as error:
            raise RunError(
                f"{name} is submitted, but not tied to what belongs to it: {error}; "
                f"`python -m cloud.submit cancel {name} …` deletes all of it"
            ) from None
        return name

    def status(self, job: str) -> JobStatus:
        return self._kind.status(self.describe(job))

    def describe(self, job: str) -> Json:
        found = self._kubectl.get(self._kind.resource, job, "--ignore-not-found")
        if not found:
            raise self._no_such(job)
        return found[0]

    def list(self) -> Sequence[JobStatus]:
        found = self._kubectl.list(self._kind.resource, MANAGED_BY)
        return sorted(map(self._kind.status, found), key=lambda job: job.created, reverse=True)

    def cancel(self, job: str) -> None:
        """Deletes the job and what belongs to it; the pods get their grace."""
        # Kubernetes deletes it with the job, unless the program that made it was interrupted.
        kinds = (self._kind.resource, "networkpolicies", *self._kind.parts)
        deleted = [*self._delete_own(",".join(kinds), job)]
        try:
            deleted += self._delete_own("configmaps", config_map_name(job))
        except RefusedError as error:
            if error.reason != "Forbidden":  # without a right to ConfigMaps there is none
                raise
        if not deleted:
            raise self._no_such(job)

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        return self._logs.new_lines(job)

    def _create(self, manifest: Request, submission: str) -> Json:
        assert isinstance(manifest, dict)
        annotations = manifest["metadata"].get("annotations") or {}  # those of --patch
        marked = {**annotations, _SUBMISSION: submission}
        own = {**manifest["metadata"], "annotations": marked}
        document = json.dumps({**manifest, "metadata": own})
        try:
            text = self._kubectl.run("create", "--filename=-", "--output=json", stdin=document)
        except RefusedError as error:
            if _NOT_INSTALLED.search(str(error)):
                raise UserError(f"{error}; {self._kind.install} in the cluster") from None
            if error.reason != "AlreadyExists":
                raise
            [found] = self._kubectl.get("--filename=-", stdin=document)
            # A repeated command finds what the one before has made.
            if (found["metadata"].get("annotations") or {}).get(_SUBMISSION) == submission:
                return found
            raise self._is_there_already(found) from None
        made: Json = json.loads(text)
        return made

    def _delete_own(self, kinds: str, name: str) -> Sequence[str]:
        """Deletes objects of a name that this program has made; which those were."""
        named = f"--field-selector=metadata.name={name}"
        return self._kubectl.delete(kinds, selected(MANAGED_BY), named)

    def _is_there_already(self, found: Json) -> UserError:
        name = found["metadata"]["name"]
        there = f"there is a {found['kind']} {name} in {self._kubectl.place} already"
        if not MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items():
            return UserError(f"{there}, which this program has not made; give another --name")
        return UserError(
            f"{there}; give another --name, or end it with `python -m cloud.submit cancel {name} …`"
        )

    def _no_such(self, job: str) -> UserError:
        return UserError(
            f"there is no {self._kind.name} {job} of this program in {self._kubectl.place}; "
            f"`python -m cloud.submit list --target={self._kind.name} …` shows what there is"
        )


class _PodLogs:
    """Reads each line of each container once, also of containers that were restarted."""

    def __init__(self, kind: KubernetesKind, kubectl: Kubectl):
        self._kind = kind
        self._kubectl = kubectl
        self._read_at: float | None = None
        self._restarts: dict[str, int] = {}  # by pod's uid
        self._seen: set[tuple[str, ...]] = set()  # lines that the next look may find again

    def new_lines(self, job: str) -> Iterator[tuple[str, str]]:
        of_job = {self._kind.name_label: job}
        pods = self._kubectl.list("pods", of_job)
        if not pods:
            return
        now, since = time.monotonic(), ["--tail=-1"]
        if self._read_at is not None:
            since.append(f"--since={math.ceil(now - self._read_at) + _OVERLAP_SECONDS}s")
        text = self._read(selected(of_job), "--ignore-errors", *since)
        errors = re.findall("^error: (.*)", text, re.MULTILINE)
        for error in errors:
            if "forbidden" in error:
                raise RefusedError(error, "Forbidden")
        lines = _parsed(text)
        # A container that waits to be restarted still has the lines of the one before.
        known = {*lines, *self._seen}
        before = [_parsed(self._last_words(pod, since)) for pod in pods]
        tasks = {x["metadata"]["name"]: self._kind.task(x["metadata"]["labels"]) for x in pods}
        # Pods that are younger than their list are for the next look.
        lines = [x for each in before for x in each if x not in known] + lines
        lines = [x for x in lines if x[0] in tasks]
        for name, _, line in (x for x in lines if x not in self._seen):
            plain, labels = _plain(line)
            yield teller(tasks[name], labels), plain
        # A pod that could not be read keeps its lines for the next look.
        is_whole = all(_NOT_STARTED.search(error) for error in errors)
        self._read_at = now if is_whole else self._read_at
        self._seen = {*lines, *(() if is_whole else self._seen)}

    def _last_words(self, pod: Json, since: Sequence[str]) -> str:
        """What a container has written that was restarted since the last look."""
        states = (pod.get("status") or {}).get("containerStatuses") or []
        restarts = next(
            (x.get("restartCount", 0) for x in states if x["name"] == self._kind.container), 0
        )
        uid = pod["metadata"]["uid"]
        known, self._restarts[uid] = self._restarts.get(uid, 0), restarts
        if restarts <= known:
            return ""
        try:
            return self._read(pod["metadata"]["name"], "--previous", *since)
        except RefusedError:  # the pod has gone, or its node has dropped them
            return ""

    def _read(self, *arguments: str) -> str:
        flags = (f"--container={self._kind.container}", "--prefix", "--timestamps")
        return self._kubectl.run("logs", *flags, *arguments)


def _parsed(text: str) -> list[tuple[str, ...]]:
    return [match.groups() for match in map(_LINE.fullmatch, text.split("\n")) if match]


def _plain(line: str) -> tuple[str, Json]:
    """What a line says that may be an object of JSON, as tasks write them here, and its labels."""
    if not line.startswith("{"):
        return line, {}
    try:
        fields = json.loads(line)
    except ValueError:
        return line, {}
    labels = fields.get(LABELS)
    return said(fields) or line, labels if isinstance(labels, dict) else {}
