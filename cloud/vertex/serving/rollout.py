"""How a version comes to an endpoint: tried on some of the traffic, then kept or taken away.

A split of traffic has percents by the ids of deployed models. It adds up to 100, or is empty where
nothing is served.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloud.remote_target import PollOptions
from cloud.target import Request
from cloud.vertex.checks import VertexSettings
from cloud.vertex.client import Client, shown
from cloud.vertex.serving.endpoints import (
    DeployedModel,
    Endpoint,
    Endpoints,
    Models,
    OperationFailedError,
    Operations,
    deployed_models,
    replicas,
    split_of,
    title,
    traffic_shown,
)
from cloud.vertex.serving.predictions import Predictions, UnhealthyError
from cloud.vertex.serving.requests import LABEL, NEW, WHOLE, Requests
from tfps.errors import RunError, UserError

_TRIAL = 10  # percents of the traffic for a version that gets all of it once it has answered
_IDS = (10**9, 10**10 - 1)  # of deployed models: ten digits
_RANDOM = random.SystemRandom()
Split = dict[str, int]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A version of a model to be served."""

    model: str
    version: str
    wanted: DeployedModel  # the version on its machines
    records: Mapping[str, Any]  # the request for predictions with which it is tried
    share: int = WHOLE  # percents of the traffic, to stay; with all it becomes the only one

    def is_same(self, deployed: DeployedModel) -> bool:
        """Whether a deployed model is this, on such machines, however many."""
        name, _, version = deployed.model.rpartition("/")[2].partition("@")
        found = (name, deployed.model_version_id or version)
        return found == (self.model, self.version) and _place(deployed) == _place(self.wanted)


class Rollout:
    """Changes what the endpoints of a region serve."""

    def __init__(self, settings: VertexSettings, polling: PollOptions, say: Callable[[str], None]):
        client = Client(settings)
        operations = Operations(client, polling, say)
        self.models = Models(client, operations, say)
        self.endpoints = Endpoints(client, operations)
        self.predictions = Predictions(client, say)
        self._client = client
        self._say = say

    def candidate(
        self, requests: Requests, version: str, records: Mapping[str, Any], share: int
    ) -> Candidate:
        """What `deploy` takes, of a version that is uploaded."""
        wanted = self._client.message("DeployedModel", requests.deployed())
        return Candidate(requests.name, version, wanted, records, share)

    def deploy(self, name: str, candidate: Candidate) -> None:
        """Deploys a candidate, unless it is deployed, tries it, and gives it its traffic."""
        endpoint = self.endpoints.quiet(name)
        same = [key for key, each in deployed_models(endpoint).items() if candidate.is_same(each)]
        deployed = same[0] if same else str(_RANDOM.randint(*_IDS))
        candidate.wanted.id = deployed
        had_all = bool(same) and split_of(endpoint)[deployed] == WHOLE
        candidate = self._alone_or_shared(endpoint, deployed, candidate)
        if same:
            self._scale(endpoint, candidate.wanted)
        try:
            self._introduce(endpoint, candidate)
            self._check(self.endpoints.get(name), deployed, candidate)
        except (OperationFailedError, UnhealthyError) as error:
            if had_all:
                raise RunError(f"{error}; nothing was changed") from None
            raise self._undone(name, deployed, error) from None
        self._settle(name, deployed, candidate.share)

    def undeploy(self, name: str, deployed: str) -> None:
        """Takes one deployed model away; the others get its traffic."""
        endpoint = self.endpoints.quiet(name)
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
        self._take_away(name, deployed)

    def undeploy_all(self, name: str) -> None:
        """Takes everything away, and the endpoint where this program has made it."""
        endpoint = self.endpoints.quiet(name)
        split = split_of(endpoint)
        for deployed in sorted(split, key=lambda key: split[key]):
            self._take_away(name, deployed)
        if LABEL in endpoint.labels:
            self.endpoints.delete(endpoint)
            self._say(f"the endpoint {name} is deleted")
        self._say(
            f"the versions of the model {name} stay, which costs no more than their storage; "
            f"`gcloud ai models delete {name} --region=…` deletes them"
        )

    def listed(self) -> Iterator[str]:
        """The endpoints and models that this program has made, a line each."""
        for endpoint in self.endpoints.made_here():
            yield f"endpoint {endpoint.display_name}: {traffic_shown(endpoint)}  {endpoint.name}"
        for model in self.models.made_here():
            yield f"model {model.display_name}  {model.name}"

    def described(self, name: str) -> list[Request]:
        return [*map(shown, [self.endpoints.get(name), *self.models.versions(name)])]

    def _take_away(self, name: str, deployed: str) -> None:
        """Takes one deployed model away, and says what stops costing money."""
        endpoint = self.endpoints.get(name)
        found = deployed_models(endpoint).get(deployed)
        if not found:
            return
        what = f"undeploying {title(found)}"
        self._say(what)
        self.endpoints.undeploy(endpoint, deployed, left(split_of(endpoint), deployed), what)
        kind = found.dedicated_resources.machine_spec.machine_type or "what it ran on"
        self._say(f"{title(found)} is undeployed: {kind} costs nothing any more")

    def _alone_or_shared(
        self, endpoint: Endpoint, deployed: str, candidate: Candidate
    ) -> Candidate:
        """The candidate; with all traffic if nothing else takes the rest of it."""
        others = [share for key, share in split_of(endpoint).items() if key != deployed]
        if candidate.share == WHOLE or any(others):
            return candidate
        self._say(
            f"--traffic={candidate.share}: {endpoint.display_name} serves nothing else that "
            "would take the rest of the traffic, so this version gets all of it"
        )
        return dataclasses.replace(candidate, share=WHOLE)

    def _scale(self, endpoint: Endpoint, wanted: DeployedModel) -> None:
        """Gives what is deployed the number of machines asked for."""
        found = deployed_models(endpoint)[wanted.id]
        self._say(f"{endpoint.display_name} serves {title(found)} already")
        if replicas(found) != replicas(wanted):
            what = f"changing the number of machines of {title(found)}"
            self._say(what)
            self.endpoints.scale(endpoint, wanted, what)

    def _introduce(self, endpoint: Endpoint, candidate: Candidate) -> None:
        """Deploys a candidate with some of the traffic, or gives some to what is deployed."""
        split, deployed = split_of(endpoint), candidate.wanted.id
        if split.get(deployed):
            return
        others = {name: share for name, share in split.items() if name != deployed}
        is_trial = candidate.share == WHOLE and any(others.values())
        share = _TRIAL if is_trial else candidate.share
        if deployed in split:
            self.endpoints.set_traffic(endpoint, joined(others, deployed, share))
            return
        name = endpoint.display_name
        what = f"deploying {candidate.model}@{candidate.version} to {name} ({deployed})"
        self._say(f"{what}, with {share} % of the traffic; this takes some minutes")
        self.endpoints.deploy(endpoint, candidate.wanted, joined(others, NEW, share), what)

    def _check(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        share = split_of(endpoint).get(deployed, 0)
        if not share:
            raise UnhealthyError(f"the deployed model {deployed} has no traffic")
        self.predictions.check(endpoint, deployed, share, candidate.records)

    def _settle(self, name: str, deployed: str, share: int) -> None:
        """Gives a deployed model its traffic; with all of it, takes the rest away; repeatable."""
        endpoint = self.endpoints.get(name)
        others = {key: each for key, each in split_of(endpoint).items() if key != deployed}
        is_shared = share < WHOLE and any(others.values())
        wanted = joined(others, deployed, share) if is_shared else {deployed: WHOLE}
        endpoint = self.endpoints.set_traffic(endpoint, wanted)
        self._say(f"{name}: {traffic_shown(endpoint)}")
        if share == WHOLE:
            for other in others:
                self._take_away(name, other)

    def _undone(self, name: str, deployed: str, error: RunError) -> RunError:
        """Takes a deployed model away after a failure; returns the error to raise."""
        self._say(f"{error}; taking it away")
        try:
            endpoint = self.endpoints.quiet(name)
            # Traffic first: if the rest fails, no request reaches it any more.
            if split := left(split_of(endpoint), deployed):
                self.endpoints.set_traffic(endpoint, split)
            self._take_away(name, deployed)
        except (UserError, RunError) as again:
            return RunError(
                f"{error}; it could not be taken away either: {again}; look with the verb "
                f"describe, and give `undeploy {name} --deployed_model={deployed}`"
            )
        now = traffic_shown(self.endpoints.get(name))
        return RunError(f"{error}; it is taken away: the traffic of {name} is {now}")


def _place(deployed: DeployedModel) -> tuple[Any, ...]:
    """What kind of machines a deployed model has, and as whom it runs."""
    machine = deployed.dedicated_resources.machine_spec
    kind = (machine.machine_type, machine.accelerator_type, machine.accelerator_count)
    return (*kind, deployed.service_account)


def _scaled(split: Mapping[str, int], total: int) -> Split:
    """Percents in the same proportions, as near as whole numbers come; none of zero gets some."""
    before = sum(split.values())
    found = {name: share * total // before for name, share in split.items()}
    # What is left by rounding down goes to the largest remainders, one each.
    order = sorted(split, key=lambda name: (-(split[name] * total % before), name))
    for name in order[: total - sum(found.values())]:
        found[name] += 1
    return found


def joined(split: Mapping[str, int], newcomer: str, share: int) -> Split:
    """A split with one more deployed model; what the others have keeps its proportions."""
    if not any(split.values()):
        assert share == WHOLE, "nothing else takes the rest of the traffic"
        return {**dict.fromkeys(split, 0), newcomer: WHOLE}
    return {**_scaled(split, WHOLE - share), newcomer: share}


def left(split: Mapping[str, int], leaver: str) -> Split:
    """A split of the others, who share out what a deployed model had; empty without traffic."""
    others = {name: share for name, share in split.items() if name != leaver}
    return _scaled(others, WHOLE) if any(others.values()) else {}
