"""What is to be served by an endpoint, beside what is served by it already."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cloud.vertex.serving import traffic

TRIAL = 10  # percents of the traffic for a version that is to have all once it has answered


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What is to be served.

    Attributes:
        model: Id of the model.
        version: Number of its version.
        body: The request that deploys it, with a split that is replaced.
        records: A request for predictions of a few records, with which it is tried; empty for
            what comes back without any.
        share: Its percents of the traffic, to stay; the whole makes it the only one.
        returns: Whether a rollback brings it back.
    """

    model: str
    version: str
    body: Mapping[str, Any]
    records: Mapping[str, Any]
    share: int = traffic.WHOLE
    returns: bool = False

    def is_same(self, deployed: Mapping[str, Any]) -> bool:
        """Whether a deployed model is this, on such machines, however many."""
        name, _, version = str(deployed.get("model", "")).rpartition("/")[2].partition("@")
        found = str(deployed.get("modelVersionId") or version)
        is_alike = _place(deployed) == _place(self.body["deployedModel"])
        return (name, found) == (self.model, self.version) and is_alike

    def first_share(self, others: Mapping[str, int]) -> int:
        """Percents of the traffic with which it is tried.

        Args:
            others: Percents of what it comes beside.
        """
        is_to_be_alone = self.share == traffic.WHOLE
        return TRIAL if any(others.values()) and is_to_be_alone else self.share

    @property
    def replicas(self) -> dict[str, int]:
        """How many machines there are to be at least and at most, as requests have it."""
        resources = self.body["deployedModel"]["dedicatedResources"]
        return {name: resources[name] for name in ("minReplicaCount", "maxReplicaCount")}


def _place(deployed: Mapping[str, Any]) -> tuple[Any, ...]:
    """What kind of machines a deployed model has, and as whom it runs."""
    machine = deployed.get("dedicatedResources", {}).get("machineSpec", {})
    fields = ("machineType", "acceleratorType", "acceleratorCount")
    return (*(machine.get(field) for field in fields), deployed.get("serviceAccount", ""))
