"""What an endpoint's labels say of its canary: which deployed model it is, and what was before.

A deployed model has no labels, and whoever promotes a canary need not be who has deployed it.
"""

from collections.abc import Mapping

from cloud.vertex.serving import traffic
from cloud.vertex.serving.endpoints import Endpoint, deployed_models, split_of

CANARY = "tfps-canary"  # the id
_BEFORE = "tfps-before-"  # and an id: its percents before the canary


def canary_of(endpoint: Endpoint) -> str:
    """The id of the canary; empty if there is none."""
    found = str(endpoint.get("labels", {}).get(CANARY, ""))
    return found if found in deployed_models(endpoint) else ""


def marked(endpoint: Endpoint, canary: str) -> Endpoint:
    """The change of an endpoint that makes a deployed model its canary.

    Args:
        endpoint: As it is before the model is deployed.
        canary: Id that the deployed model gets.
    """
    before = {f"{_BEFORE}{name}": str(share) for name, share in split_of(endpoint).items()}
    return {"labels": {**_others(endpoint.get("labels", {})), CANARY: canary, **before}}


def unmarked(endpoint: Endpoint) -> Endpoint:
    """The change of an endpoint after which it has no canary any more."""
    return {"labels": _others(endpoint.get("labels", {}))}


def split_before(endpoint: Endpoint, canary: str) -> traffic.Split:
    """The traffic without the canary, as it was before it where all of that is still deployed.

    Args:
        endpoint: The endpoint.
        canary: Id of the canary, which may be deployed or not.

    Returns:
        A split of the others; empty if nothing else is deployed.
    """
    labels = endpoint.get("labels", {})
    others = [name for name in deployed_models(endpoint) if name != canary]
    before = {name: _share(labels.get(f"{_BEFORE}{name}", "")) for name in others}
    now = {name: share for name, share in split_of(endpoint).items() if name != canary}
    for split in (before, now, dict.fromkeys(others, 1)):
        if any(split.values()):
            return traffic.scaled(split, traffic.WHOLE)
    return {}


def _share(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _others(labels: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in labels.items()
        if name != CANARY and not name.startswith(_BEFORE)
    }
