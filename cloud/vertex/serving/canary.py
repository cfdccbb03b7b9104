"""What an endpoint's labels say of its canary: which deployed model it is, and what was before.

A deployed model has no labels, and whoever promotes a canary need not be who has deployed it.
"""

from collections.abc import Mapping

from cloud.vertex.serving import traffic
from cloud.vertex.serving.endpoints import Endpoint, deployed_models, split_of
from cloud.vertex.serving.previous import forgotten

CANARY = "tfps-canary"  # the id
_BEFORE = "tfps-before-"  # and an id: its percents before the canary
_RETURNING = "tfps-returning"  # the id of a canary that served before, and is to do so again
_ROLLED_BACK = "tfps-rolled-back"  # there is what the last rollback has left


def canary_of(endpoint: Endpoint) -> str:
    """The id of the canary; empty if there is none."""
    found = str(endpoint.get("labels", {}).get(CANARY, ""))
    return found if found in deployed_models(endpoint) else ""


def is_returning(endpoint: Endpoint, deployed: str) -> bool:
    """Whether a deployed model, or one that was to be, is what a rollback brings back."""
    return endpoint.get("labels", {}).get(_RETURNING) == deployed


def is_rolled_back(endpoint: Endpoint) -> bool:
    """Whether nothing was deployed since a rollback."""
    return _ROLLED_BACK in endpoint.get("labels", {})


def marked(endpoint: Endpoint, canary: str, *, returning: bool = False) -> Endpoint:
    """The change of an endpoint that makes a deployed model its canary.

    Args:
        endpoint: As it is before the model is deployed.
        canary: Id that the deployed model gets.
        returning: Whether a rollback brings it back.
    """
    before = {f"{_BEFORE}{name}": str(share) for name, share in split_of(endpoint).items()}
    back = {_RETURNING: canary} if returning else {}
    return {"labels": {**_others(endpoint.get("labels", {})), CANARY: canary, **before, **back}}


def unmarked(endpoint: Endpoint) -> Endpoint:
    """The change of an endpoint after which it has no canary any more."""
    return {"labels": _others(endpoint.get("labels", {}))}


def rolled_back(endpoint: Endpoint) -> Endpoint:
    """The change of an endpoint after which it has no canary, since that was rolled back."""
    return {"labels": {**_others(endpoint.get("labels", {})), _ROLLED_BACK: "yes"}}


def returned(endpoint: Endpoint) -> Endpoint:
    """The change of an endpoint to which a rollback has brought back what served before."""
    return {"labels": forgotten(rolled_back(endpoint)["labels"])}


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
        if name not in (CANARY, _RETURNING, _ROLLED_BACK) and not name.startswith(_BEFORE)
    }
