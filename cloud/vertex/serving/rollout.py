"""How a version comes to an endpoint, and the one before it goes: canary, promote, roll back.

Whatever is deployed beside others is a canary first. It gets some of the traffic, is asked for
predictions, and either stays, gets all traffic, or is taken away again.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from cloud.vertex.serving import traffic
from cloud.vertex.serving.canary import (
    canary_of,
    is_returning,
    is_rolled_back,
    marked,
    returned,
    rolled_back,
    split_before,
    unmarked,
)
from cloud.vertex.serving.candidate import Candidate
from cloud.vertex.serving.endpoint_requests import NEW, deploy_body, without_zeros
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
from cloud.vertex.serving.previous import Previous
from cloud.vertex.serving.undeployment import take_away
from tfps.errors import RunError, UserError

RecordsOf = Callable[[str, str], Mapping[str, Any]]


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

    def rollback(self, name: str, records_of: RecordsOf) -> None:
        """Takes the canary away, or brings back what served before the last promotion.

        Args:
            name: Of the endpoint.
            records_of: What a version is tried with, by the model's id and the version's number.

        Raises:
            UserError: If nothing is known of what served before.
            RunError: If that cannot be deployed or does not answer; the traffic is as it was.
        """
        endpoint = self._quiet(name)
        canary, before = canary_of(endpoint), Previous.of_endpoint(endpoint)
        if canary and not is_returning(endpoint, canary):
            if len(deployed_models(endpoint)) > 1:
                self._remove(name, canary)
                return
            endpoint = self._endpoints.change(endpoint, unmarked)  # its promotion was cut short
        if is_rolled_back(endpoint):
            self._say(
                f"{name} was rolled back before; its traffic: {self._shown(endpoint)}. Deploy "
                "what is to be served instead, with --version"
            )
            return
        if before is None:
            raise UserError(
                f"{name} has no canary, and nothing is known of what served before; its traffic: "
                f"{self._shown(endpoint)}. Deploy what is to be served instead, with --version"
            )
        parent = str(endpoint["name"]).rpartition("/endpoints/")[0]
        self._bring_back(name, parent, before, records_of(before.model, before.version))

    def _bring_back(
        self, name: str, parent: str, before: Previous, records: Mapping[str, Any]
    ) -> None:
        """Deploys what served before on the machines that it had, and takes away all else."""
        model = f"{parent}/models/{before.model}@{before.version}"
        body = deploy_body(model, before.model, before.machines, before.service_account, {})
        self._say(
            f"{name}: bringing back version {before.version} of {before.model}; "
            f"{before.machines.shown} cost money for as long as it is deployed"
        )
        self.deploy(name, Candidate(before.model, before.version, body, records, returns=True))

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
        share = candidate.first_share(split_of(endpoint))
        if deployed_models(endpoint):
            endpoint = self._endpoints.change(
                endpoint, lambda now: marked(now, deployed, returning=candidate.returns)
            )
        split = traffic.joined(split_of(endpoint), NEW, share)
        what = f"deploying {candidate.model}@{candidate.version} to {name} ({deployed})"
        self._say(f"{what}, with {share} % of the traffic; this takes some minutes")
        body = {**candidate.body, "trafficSplit": without_zeros(split)}
        self._endpoints.deploy(endpoint, body, deployed, what)

    def _enlist(self, endpoint: Endpoint, deployed: str, candidate: Candidate) -> None:
        """Makes the canary of what is deployed already, beside others that have traffic."""
        split = split_of(endpoint)
        others = {name: share for name, share in split.items() if name != deployed}
        share = candidate.first_share(others)
        endpoint = self._endpoints.change(
            endpoint, lambda now: marked(now, deployed, returning=candidate.returns)
        )
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
        if not candidate.records:
            self._say(
                f"{deployed} was asked for no predictions, since no records are known to try it "
                "with; its servers have started, as they did before"
            )
            return
        self._predictions.check(endpoint, deployed, share, candidate.records, self._say)

    def _finish(self, name: str, deployed: str) -> None:
        """Gives a deployed model all traffic, and takes away everything else.

        If that fails half-way, the model is the canary still, and the same command goes on.
        """
        endpoint = self._endpoints.get(name)
        alone = without_zeros(traffic.alone(split_of(endpoint), deployed))
        before = self._replaced(endpoint, deployed)
        endpoint = self._endpoints.change(
            endpoint,
            lambda now: {"trafficSplit": alone, "labels": {**now.get("labels", {}), **before}},
        )
        self._say(f"{name}: {self._shown(endpoint)}")
        for other, each in deployed_models(endpoint).items():
            if other != deployed:
                take_away(self._endpoints, endpoint, each, self._say)
        self._endpoints.change(endpoint, returned if is_returning(endpoint, deployed) else unmarked)

    def _replaced(self, endpoint: Endpoint, deployed: str) -> dict[str, str]:
        """Labels that tell of what a deployed model comes in the place of, if it is there still.

        Of several it is the one that had most of the traffic.
        """
        split = split_before(endpoint, deployed)
        if not split or is_returning(endpoint, deployed):
            return {}
        most = deployed_models(endpoint)[max(split, key=lambda key: split[key])]
        before = Previous.of_deployed(most)
        if before is None:
            self._say(f"{title(most)} is none that the verb rollback could bring back")
            return {}
        return before.labels()

    def _remove(self, name: str, canary: str) -> None:
        """Gives the traffic back to what was there before a canary, and takes that away."""
        endpoint = self._endpoints.get(name)
        if split := split_before(endpoint, canary):
            endpoint = self._endpoints.set_traffic(endpoint, split)
            self._say(f"{name}: {self._shown(endpoint)}")
        if canary in deployed_models(endpoint):
            take_away(self._endpoints, endpoint, deployed_models(endpoint)[canary], self._say)
        is_return = is_returning(endpoint, canary)
        self._endpoints.change(endpoint, unmarked if is_return else rolled_back)

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
