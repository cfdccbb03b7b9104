"""What an endpoint's labels say of the version that served before, to bring it back.

It was taken away when the next one got all traffic, and with it went the only place where Vertex AI
tells on which machines it was served. A label's value has lowercase letters, digits, `_` and `-`.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from cloud.vertex.serving.endpoint_requests import Machines
from cloud.vertex.serving.endpoints import Endpoint

_PREFIX = "tfps-previous-"
_VALUE = r"[a-z0-9_-]{0,63}"
_DOT = "_"  # in a label; addresses of service accounts have no such sign


class Previous(NamedTuple):
    """A version that was served, and on what.

    Attributes:
        model: Id of the model.
        version: Number of its version.
        machines: What it was served on.
        service_account: Account that its containers ran as; empty for one without rights.
    """

    model: str
    version: str
    machines: Machines
    service_account: str

    @classmethod
    def of_deployed(cls, deployed: Mapping[str, Any]) -> Self | None:
        """What a deployed model is; None of one on machines that this program cannot ask for."""
        resources = deployed.get("dedicatedResources", {})
        spec = resources.get("machineSpec", {})
        if not spec.get("machineType"):
            return None
        model, _, version = str(deployed.get("model", "")).rpartition("/")[2].partition("@")
        least = int(resources.get("minReplicaCount", 1))
        machines = Machines(
            str(spec["machineType"]),
            str(spec.get("acceleratorType", "")),
            int(spec.get("acceleratorCount", 0)),
            least,
            int(resources.get("maxReplicaCount", least)),
        )
        number = str(deployed.get("modelVersionId") or version)
        found = cls(model, number, machines, str(deployed.get("serviceAccount", "")))
        return found if cls.of_endpoint({"labels": found.labels()}) == found else None

    @classmethod
    def of_endpoint(cls, endpoint: Endpoint) -> Self | None:
        """What an endpoint's labels tell; None if they tell of none."""
        labels = {
            name.removeprefix(_PREFIX): str(value)
            for name, value in endpoint.get("labels", {}).items()
            if name.startswith(_PREFIX) and re.fullmatch(_VALUE, str(value))
        }
        numbers = [labels.get(name, "") for name in ("least", "most", "gpus")]
        if not labels.get("model") or not all(map(str.isdecimal, numbers)):
            return None
        least, most, gpus = map(int, numbers)
        machines = Machines(
            labels.get("machine", ""), labels.get("gpu", "").upper(), gpus, least, most
        )
        account = labels.get("account", "").replace(_DOT, ".")
        domain = labels.get("domain", "").replace(_DOT, ".")
        return cls(
            labels["model"],
            labels.get("version", ""),
            machines,
            f"{account}@{domain}" if account else "",
        )

    def labels(self) -> dict[str, str]:
        """The labels of an endpoint that tell of it."""
        account, _, domain = self.service_account.partition("@")
        found = {
            "model": self.model,
            "version": self.version,
            "machine": self.machines.machine,
            "gpu": self.machines.accelerator.lower(),
            "gpus": str(self.machines.accelerators),
            "least": str(self.machines.min_replicas),
            "most": str(self.machines.max_replicas),
            "account": account.replace(".", _DOT),
            "domain": domain.replace(".", _DOT),
        }
        return {f"{_PREFIX}{name}": value for name, value in found.items() if value}


def forgotten(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of an endpoint without those that tell of a version that served before."""
    return {name: value for name, value in labels.items() if not name.startswith(_PREFIX)}
