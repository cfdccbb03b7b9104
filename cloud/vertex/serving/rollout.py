"""How a version comes to an endpoint, and the one before it goes: canary, promote, roll back.

Whatever is deployed beside others is a canary first. It gets some of the traffic, is asked for
predictions, and either stays, gets all traffic, or is taken away again.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from cloud.vertex.serving import traffic
from cloud.vertex.serving.canary import canary_of, marked, split_before, unmarked
from cloud.vertex.serving.endpoint_requests import NEW, without_zeros
from cloud.vertex.serving.endpoints import (
    Endpoint,
    Endpoints,
    deployed_models,
    new_id,
    split_of,
    title,
)
from cloud.vertex.serving.health import Predictions, UnhealthyError
from cloud.vertex.serving.operations import OperationFailedError
from cloud.vertex.serving.undeployment import take_away
from tfps.errors import RunError, UserError

TRIAL = 10  # percents of the traffic for a version that is to have all once it has answered


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What is to be served.

    Attributes:
        model: Id of the model.
        version: Number of its version.
        body: The request that deploys it, with a split that is replaced.
        records: A request for predictions of a few records.
        share: Its percents of the traffic, to stay; the whole makes it the only one.
    """

    model: str
    version: str
    body: Mapping[str, Any]
    records: Mapping[str, Any]
    share: int = traffic.WHOLE

    def is_same(self, deployed: Mapping[str, Any]) -> bool:
        """Whether a deployed model is this, on such machines, however many."""
        name, _, version = str(deployed.get("model", "")).rpartition("/")[2].partition("@")
        found = str(deployed.get("modelVersionId") or version)
        is_alike = _place(deployed) == _place(self.body["deployedModel"])
        return (name, found) == (self.model, self.version) and is_alike

    @property
    def replicas(self) -> dict[str, int]:
        """How many machines there are to be at least and at most, as requests have it."""
        resources = self.body["deployedModel"]["dedicatedResources"]
        return {name: resources[name] for name in ("minReplicaCount", "maxReplicaCount")}


class Rollout:
    """Changes what an endpoint serves."""

    def __init__(
        self,
        endpoints: Endpoints,
        predictions: Predictions,
        wait: Callable[[Endpoint], None],
        say: Callable[[str], None],
    ):
        """Reaches the endpoints.

        Args:
            endpoints: Those of a region.
            predictions: Asks them.
            wait: Waits until nothing is under way at an endpoint.
            say: Prints a line.
        """
        self._endpoints = endpoints
        self._predictions = predictions
        self._wait = wait
        self._say = say

    def deploy(self, name: str, candidate: Candidate) -> None:
        """Deploys a candidate, unless it is deployed, and tries it.

        Args:
            name: Of the endpoint, which exists.
            candidate: What is to be served.

        Raises:
            UserError: If there is another canary.
            RunError: If it cannot be deployed or does not answer; the traffic is as it was before.
        """
        endpoint = self._quiet(name)
        canary = canary_of(endpoint)
        same = [key for key, each in deployed_models(endpoint).items() if candidate.is_same(each)]
        if canary and canary not in same:
            raise UserError(
                f"{name} has a canary, {title(deployed_models(endpoint)[canary])}; end that first, "
                "with the verb promote or rollback"
            )
        deployed = canary or (same[0] if same else new_id())
        candidate = self._alone_or_shared(endpoint, deployed, candidate)
        if same:
            self._scale(endpoint, deployed, candidate)
        if same and split_of(endpoint)[deployed] == traffic.WHOLE and not canary:
            try:
                self._check(endpoint, deployed, candidate)
            except UnhealthyError as error:
                raise RunError(f"{error}; nothing was changed") from None
            return
        try:
            if not same:
                self._add(endpoint, deployed, candidate)
            elif not canary:
                self._enlist(endpoint, deployed, candidate)
            self._check(self._endpoints.get(name), deployed, candidate)
        except (OperationFailedError, UnhealthyError) as error:
            raise self._undone(name, deployed, error) from None
        if candidate.share == traffic.WHOLE:
            self._finish(name, deployed)
        else:
            self._give(name, deployed, candidate.share)

    def promote(self, name: str) -> None:
        """Gives the canary all traffic, and takes away everything else.

        Args:
            name: Of the endpoint.
        """
        endpoint = self._quiet(name)
        canary = canary_of(endpoint)
        if not canary:
            self._say(f"{name} has no canary; its traffic: {self._shown(endpoint)}")
            return
        self._finish(name, canary)

    def rollback(self, name: str) -> None:
        """Gives the canary's traffic back, and takes it away.

        Args:
            name: Of the endpoint.

        Raises:
            UserError: If nothing else is deployed.
        """
        endpoint = self._quiet(name)
        canary = canary_of(endpoint)
        if not canary:
            self._say(f"{name} has no canary; its traffic: {self._shown(endpoint)}")
            self._endpoints.change(endpoint, unmarked)
            return
        if len(deployed_models(endpoint)) == 1:
            raise UserError(
                f"nothing else is deployed to {name} any more; deploy what is to be served instead"
            )
        self._remove(name, canary)

    def _alone_or_shared(
        self, endpoint: Endpoint, deployed: str, candidate: Candidate
    ) -> Candidate:
        """The candidate; with all traffic if nothing is there that would take the rest of it."""
        others = [share for key, share in split_of(endpoint).items() if key != deployed]
        if candidate.share == traffic.WHOLE or any(others):
            return candidate
        self._say(
            f"--canary={candidate.share}: {endpoint['displayName']} serves nothing else that would "
            "take the rest of the traffic, so this version gets all of it"
        )
        return dataclasses.replace(candidate, share=traffic.WHOLE)

    def _quiet(self, name: str) -> Endpoint:
        """An endpoint at which nothing is under way."""
        self._wait(self._endpoints.get(name))
        return self._endpoints.get(name)

    def _scale(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Sees that a candidate which is deployed has as many machines as it is to have."""
        found = deployed_models(endpoint)[deployed]
        self._say(f"{endpoint['displayName']} serves {title(found)} already")
        if any(found["dedicatedResources"].get(k) != v for k, v in candidate.replicas.items()):
            what = f"changing the number of machines of {title(found)}"
            self._say(what)
            self._endpoints.scale(endpoint, deployed, candidate.replicas, what)

    def _add(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Deploys a candidate with some of the traffic."""
        name = str(endpoint["displayName"])
        share = _first_share(split_of(endpoint), candidate.share)
        if deployed_models(endpoint):
            endpoint = self._endpoints.change(endpoint, lambda now: marked(now, deployed))
        split = traffic.joined(split_of(endpoint), NEW, share)
        what = f"deploying {candidate.model}@{candidate.version} to {name} ({deployed})"
        self._say(f"{what}, with {share} % of the traffic; this takes some minutes")
        body = {**candidate.body, "trafficSplit": without_zeros(split)}
        self._endpoints.deploy(endpoint, body, deployed, what)

    def _enlist(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Makes the canary of what is deployed already, beside others that have traffic."""
        split = split_of(endpoint)
        others = {name: share for name, share in split.items() if name != deployed}
        share = _first_share(others, candidate.share)
        endpoint = self._endpoints.change(endpoint, lambda now: marked(now, deployed))
        if not split[deployed]:
            self._endpoints.set_traffic(endpoint, traffic.joined(others, deployed, share))

    def _give(self, name: str, deployed: str, share: int) -> None:
        """Gives a canary some of the traffic."""
        endpoint = self._endpoints.get(name)
        split = traffic.joined(split_before(endpoint, deployed), deployed, share)
        endpoint = self._endpoints.set_traffic(endpoint, split)
        self._say(f"{name}: {self._shown(endpoint)}")

    def _check(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        share = split_of(endpoint).get(deployed, 0)
        if not share:
            raise UnhealthyError(f"the deployed model {deployed} has no traffic")
        self._predictions.check(endpoint, deployed, share, candidate.records, self._say)

    def _finish(self, name: str, deployed: str) -> None:
        """Gives a deployed model all traffic, and takes away everything else.

        If that fails half-way, the model is the canary still, and the same command goes on.
        """
        endpoint = self._endpoints.get(name)
        alone = traffic.alone(split_of(endpoint), deployed)
        endpoint = self._endpoints.set_traffic(endpoint, alone)
        self._say(f"{name}: {self._shown(endpoint)}")
        for other, each in deployed_models(endpoint).items():
            if other != deployed:
                take_away(self._endpoints, endpoint, each, self._say)
        self._endpoints.change(endpoint, unmarked)

    def _remove(self, name: str, canary: str) -> None:
        """Gives the traffic back to what was there before a canary, and takes that away."""
        endpoint = self._endpoints.get(name)
        if split := split_before(endpoint, canary):
            endpoint = self._endpoints.set_traffic(endpoint, split)
            self._say(f"{name}: {self._shown(endpoint)}")
        if canary in deployed_models(endpoint):
            take_away(self._endpoints, endpoint, deployed_models(endpoint)[canary], self._say)
        self._endpoints.change(endpoint, unmarked)

    def _undone(self, name: str, deployed: str, error: RunError) -> RunError:
        """Rolls back after a failure; returns what is to be told."""
        self._say(f"{error}; rolling back")
        try:
            self._quiet(name)
            self._remove(name, deployed)
        except (UserError, RunError) as again:
            return RunError(
                f"{error}; it could not be rolled back either: {again}; look with the verb "
                f"describe, and give `rollback {name}` or `undeploy {name}` again"
            )
        now = self._shown(self._endpoints.get(name))
        return RunError(f"{error}; rolled back: the traffic of {name} is {now}")

    @staticmethod
    def _shown(endpoint: Endpoint) -> str:
        """The traffic of an endpoint for people."""
        names = {key: title(each) for key, each in deployed_models(endpoint).items()}
        return traffic.shown({names[key]: share for key, share in split_of(endpoint).items()})


def _place(deployed: Mapping[str, Any]) -> tuple[Any, ...]:
    """What kind of machines a deployed model has, and as whom it runs."""
    machine = deployed.get("dedicatedResources", {}).get("machineSpec", {})
    fields = ("machineType", "acceleratorType", "acceleratorCount")
    return (*(machine.get(field) for field in fields), deployed.get("serviceAccount", ""))


def _first_share(others: Mapping[str, int], share: int) -> int:
    """Percents of the traffic with which a candidate is tried.

    Args:
        others: Percents of what it comes beside.
        share: Its percents in the end.
    """
    return TRIAL if any(others.values()) and share == traffic.WHOLE else share
