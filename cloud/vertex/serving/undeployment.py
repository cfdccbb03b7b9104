"""How what is deployed goes, and with it what it costs."""

from collections.abc import Callable, Mapping
from typing import Any

from cloud.vertex.serving.endpoints import (
    Endpoint,
    Endpoints,
    deployed_models,
    split_of,
    title,
)
from cloud.vertex.serving.model_version import LABEL
from tfps.errors import UserError


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
