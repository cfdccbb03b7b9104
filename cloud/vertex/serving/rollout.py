"""How a version comes to an endpoint: tried on some of the traffic, then kept or taken away."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from cloud.vertex.serving import traffic
from cloud.vertex.serving.endpoints import (
    Endpoint,
    Endpoints,
    OperationFailedError,
    deployed_models,
    new_id,
    split_of,
    title,
)
from cloud.vertex.serving.health import Predictions, UnhealthyError
from cloud.vertex.serving.request_bodies import LABEL, NEW, without_zeros
from tfps.errors import RunError, UserError

_TRIAL = 10  # percents of the traffic for a version that gets all of it once it has answered


class Undeployment:
    """Takes away what is deployed."""

    def __init__(
        self,
        endpoints: Endpoints,
        wait: Callable[[Endpoint], None],
        say: Callable[[str], None],
    ):
        """Reaches the endpoints.

        Args:
            wait: Waits until nothing is under way at an endpoint.
        """
        self._endpoints = endpoints
        self._wait = wait
        self._say = say

    def of_one(self, name: str, deployed: str) -> None:
        """Takes one deployed model away; the others get its traffic."""
        endpoint = self._quiet(name)
        held, split = deployed_models(endpoint), split_of(endpoint)
        if deployed not in held:
            there = ", ".join(map(title, held.values())) or "nothing"
            raise UserError(
                f"--deployed_model={deployed} is not deployed to {name}, but {there}; name its id"
            )
        others = [share for key, share in split.items() if key != deployed]
        if others and not any(others):
            raise UserError(
                f"--deployed_model={deployed} has all traffic of {name}: deploy what is to get it "
                "first, or leave the flag out to take everything away"
            )
        take_away(self._endpoints, endpoint, held[deployed], self._say)

    def of_all(self, name: str) -> None:
        """Takes everything away, and the endpoint where this program has made it."""
        endpoint = self._quiet(name)
        split = split_of(endpoint)
        for deployed in sorted(split, key=lambda key: split[key]):
            take_away(self._endpoints, endpoint, deployed_models(endpoint)[deployed], self._say)
        if LABEL in endpoint.get("labels", {}):
            self._endpoints.delete(endpoint)
            self._say(f"the endpoint {name} is deleted")
        self._say(
            f"the versions of the model {name} stay, which costs no more than their storage; "
            f"`gcloud ai models delete {name} --region=…` deletes them"
        )

    def _quiet(self, name: str) -> Endpoint:
        """An endpoint at which nothing is under way."""
        self._wait(self._endpoints.get(name))
        return self._endpoints.get(name)


def take_away(
    endpoints: Endpoints,
    endpoint: Endpoint,
    deployed: Mapping[str, Any],
    say: Callable[[str], None],
) -> None:
    """Takes one deployed model away, and says what stops costing money."""
    machine = deployed.get("dedicatedResources", {}).get("machineSpec", {})
    what = f"undeploying {title(deployed)}"
    say(what)
    endpoints.undeploy(endpoint, str(deployed["id"]), what)
    kind = machine.get("machineType", "what it ran on")
    say(f"{title(deployed)} is undeployed: {kind} costs nothing any more")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What is to be served.

    Attributes:
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

    def first_share(self, others: Mapping[str, int]) -> int:
        """Percents of the traffic with which it is tried, next to what others have."""
        is_to_be_alone = self.share == traffic.WHOLE
        return _TRIAL if any(others.values()) and is_to_be_alone else self.share

    @property
    def replicas(self) -> dict[str, int]:
        """The least and the greatest number of machines, as requests have it."""
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
            wait: Waits until nothing is under way at an endpoint.
        """
        self._endpoints = endpoints
        self._predictions = predictions
        self._wait = wait
        self._say = say

    def deploy(self, name: str, candidate: Candidate) -> None:
        """Deploys a candidate, unless it is deployed, tries it, and gives it its traffic."""
        endpoint = self._quiet(name)
        same = [key for key, each in deployed_models(endpoint).items() if candidate.is_same(each)]
        deployed = same[0] if same else new_id()
        had_all = bool(same) and split_of(endpoint)[deployed] == traffic.WHOLE
        candidate = self._alone_or_shared(endpoint, deployed, candidate)
        if same:
            self._scale(endpoint, deployed, candidate)
        try:
            self._introduce(endpoint, deployed, candidate)
            self._check(self._endpoints.get(name), deployed, candidate)
        except (OperationFailedError, UnhealthyError) as error:
            if had_all:
                raise RunError(f"{error}; nothing was changed") from None
            raise self._undone(name, deployed, error) from None
        self._settle(name, deployed, candidate.share)

    def _alone_or_shared(
        self, endpoint: Endpoint, deployed: str, candidate: Candidate
    ) -> Candidate:
        """The candidate; with all traffic if nothing else takes the rest of it."""
        others = [share for key, share in split_of(endpoint).items() if key != deployed]
        if candidate.share == traffic.WHOLE or any(others):
            return candidate
        self._say(
            f"--traffic={candidate.share}: {endpoint['displayName']} serves nothing else that "
            "would take the rest of the traffic, so this version gets all of it"
        )
        return dataclasses.replace(candidate, share=traffic.WHOLE)

    def _quiet(self, name: str) -> Endpoint:
        """An endpoint at which nothing is under way."""
        self._wait(self._endpoints.get(name))
        return self._endpoints.get(name)

    def _scale(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Gives a candidate that is deployed the number of machines asked for."""
        found = deployed_models(endpoint)[deployed]
        self._say(f"{endpoint['displayName']} serves {title(found)} already")
        if any(found["dedicatedResources"].get(k) != v for k, v in candidate.replicas.items()):
            what = f"changing the number of machines of {title(found)}"
            self._say(what)
            self._endpoints.scale(endpoint, deployed, candidate.replicas, what)

    def _introduce(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Deploys a candidate with some of the traffic, or gives some to what is deployed."""
        split = split_of(endpoint)
        if split.get(deployed):
            return
        others = {name: share for name, share in split.items() if name != deployed}
        share = candidate.first_share(others)
        if deployed in split:
            self._endpoints.set_traffic(endpoint, traffic.joined(others, deployed, share))
            return
        name = str(endpoint["displayName"])
        what = f"deploying {candidate.model}@{candidate.version} to {name} ({deployed})"
        self._say(f"{what}, with {share} % of the traffic; this takes some minutes")
        body = {
            **candidate.body,
            "trafficSplit": without_zeros(traffic.joined(others, NEW, share)),
        }
        self._endpoints.deploy(endpoint, body, deployed, what)

    def _check(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        share = split_of(endpoint).get(deployed, 0)
        if not share:
            raise UnhealthyError(f"the deployed model {deployed} has no traffic")
        self._predictions.check(endpoint, deployed, share, candidate.records, self._say)

    def _settle(self, name: str, deployed: str, share: int) -> None:
        """Gives a deployed model its traffic; with all of it, takes everything else away.

        If that fails half-way, the same command resumes it.
        """
        endpoint = self._endpoints.get(name)
        split = split_of(endpoint)
        others = {key: each for key, each in split.items() if key != deployed}
        is_shared = share < traffic.WHOLE and any(others.values())
        wanted = traffic.joined(others, deployed, share) if is_shared else {deployed: traffic.WHOLE}
        endpoint = self._endpoints.set_traffic(endpoint, wanted)
        self._say(f"{name}: {self._shown(endpoint)}")
        if share < traffic.WHOLE:
            return
        for other, each in deployed_models(endpoint).items():
            if other != deployed:
                take_away(self._endpoints, endpoint, each, self._say)

    def _undone(self, name: str, deployed: str, error: RunError) -> RunError:
        """Takes a deployed model away after a failure; returns the error to raise."""
        self._say(f"{error}; taking it away")
        try:
            endpoint = self._quiet(name)
            if deployed in deployed_models(endpoint):
                # Traffic first: if the rest fails, no request reaches it any more.
                if split := traffic.left(split_of(endpoint), deployed):
                    endpoint = self._endpoints.set_traffic(endpoint, split)
                take_away(self._endpoints, endpoint, deployed_models(endpoint)[deployed], self._say)
        except (UserError, RunError) as again:
            return RunError(
                f"{error}; it could not be taken away either: {again}; look with the verb "
                f"describe, and give `undeploy {name} --deployed_model={deployed}`"
            )
        now = self._shown(self._endpoints.get(name))
        return RunError(f"{error}; it is taken away: the traffic of {name} is {now}")

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
