"""What Kubernetes does with a Deployment, a step whenever it is looked at."""

import copy
from typing import Any

from tests.cloud.kubernetes.fake_cluster import FakeCluster

_REVISION = "deployment.kubernetes.io/revision"
_SETS = "/apis/apps/v1/namespaces/{}/replicasets"


class Controller:
    """Makes ReplicaSets and pods, of which one more answers with each look at the Deployment.

    Attributes:
        bad: Texts of pods' templates whose servers never answer.
        gives_up: Whether, after some looks at a rollout that does not continue, it is given up.
    """

    def __init__(self, cluster: FakeCluster):
        """Acts in a cluster.

        Args:
            cluster: Its `on_read` and `on_pods` are taken.
        """
        self.bad: set[str] = set()
        self.gives_up = True
        self._cluster = cluster
        self._looks = self._old = 0
        self._template: Any = None
        cluster.on_read = self._look
        cluster.on_pods = self._end_pods

    def _look(self, found: dict[str, Any]) -> None:
        if found["kind"] != "Deployment":
            return
        template = found["spec"]["template"]
        if template != self._template:
            self._template, self._looks = copy.deepcopy(template), 0
            self._old = found.get("status", {}).get("availableReplicas", 0)
            found["metadata"].setdefault("annotations", {})[_REVISION] = self._revise(found)
            return  # Kubernetes has not seen the change yet
        self._looks += 1
        self._run(found)

    def _revise(self, found: dict[str, Any]) -> str:
        """Makes a template the newest revision: a ReplicaSet, or one that there was before."""
        sets = self._sets(found)
        number = str(
            1 + max((int(x["metadata"]["annotations"][_REVISION]) for x in sets), default=0)
        )
        template = copy.deepcopy(found["spec"]["template"])
        digest = f"hash{len(sets)}"
        for each in sets:
            held = copy.deepcopy(each["spec"]["template"])
            own = held["metadata"]["labels"].pop("pod-template-hash")
            if held == template:
                digest = own
        template["metadata"]["labels"]["pod-template-hash"] = digest
        name = f"{found['metadata']['name']}-{digest}"
        owner = {"kind": "Deployment", "uid": found["metadata"]["uid"]}
        self._cluster.objects[f"{_SETS.format(self._cluster.namespace)}/{name}"] = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "uid": f"set-{name}",
                "labels": template["metadata"]["labels"],
                "annotations": {_REVISION: number},
                "ownerReferences": [owner],
            },
            "spec": {"template": template},
        }
        return number

    def _sets(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        uid = found["metadata"]["uid"]
        return [
            each
            for each in self._cluster.objects.values()
            if each["kind"] == "ReplicaSet" and each["metadata"]["ownerReferences"][0]["uid"] == uid
        ]

    def _run(self, found: dict[str, Any]) -> None:
        """One more new server answers, and one old one goes."""
        wanted, status = found["spec"]["replicas"], found.setdefault("status", {})
        is_bad = any(text in str(self._template) for text in self.bad)
        new = 0 if is_bad else min(self._looks, wanted)
        old = self._old if is_bad else max(0, self._old - self._looks)
        status |= {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": max(1, new) + old,
            "updatedReplicas": max(1, new),
            "availableReplicas": new + old,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "Progressing"}],
        }
        if is_bad and self.gives_up and self._looks > 3:
            message = "ReplicaSet has timed out progressing."
            reason = "ProgressDeadlineExceeded"
            status["conditions"] = [{"type": "Progressing", "reason": reason, "message": message}]
        self._cluster.pods = [
            self._pod(f"{found['metadata']['name']}-{k}", is_bad) for k in range(new + old + is_bad)
        ]

    def _pod(self, name: str, is_bad: bool) -> dict[str, Any]:
        ended = {"exitCode": 255, "reason": "Error"}
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}
        bad = {"state": {"waiting": waiting}, "lastState": {"terminated": ended}}
        container = {"name": "serving", **(bad if is_bad else {"state": {"running": {}}})}
        labels = self._template["metadata"]["labels"]
        return {
            "metadata": {"name": name, "labels": labels},
            "status": {"containerStatuses": [container]},
        }

    def _end_pods(self) -> None:
        """Without their Deployment, pods end one after the other."""
        if self._cluster.pods and "Deployment" not in self._cluster.kinds():
            self._cluster.pods.pop()
