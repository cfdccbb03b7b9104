"""Predictions of an endpoint, and whether a deployed model makes them, with numbers."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloud.vertex.client import Client
from cloud.vertex.serving.endpoints import Endpoint
from cloud.vertex.serving.requests import WHOLE
from tfps.errors import RunError, UserError

_ANSWERS = 3  # of a deployed model, which are enough
_ODDS = 1e-3  # of a deployed model with traffic never to be asked
_SETTLE_SECONDS = 60.0  # after which traffic surely is divided as was asked for
_PAUSE_SECONDS = 1.0  # between requests beyond that many
_MOST_FAILURES = 5  # of requests without an answer; Google's own are few
_SERVED_BY = "X-Vertex-AI-Deployed-Model-Id"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # as protocol buffers write them in JSON


class UnhealthyError(RunError):
    """A deployed model that does not answer as it should."""


class Predictions:
    """Asks an endpoint for predictions."""

    def __init__(self, client: Client, say: Callable[[str], None]):
        self._client = client
        self._say = say

    def ask(
        self, endpoint: Endpoint, body: Mapping[str, Any], is_retried: bool = True
    ) -> tuple[dict[str, Any], str]:
        """Asks for predictions; returns the answer, and the id of the deployed model that gave it.

        With `instances` alone, Vertex AI answers in its own form; anything else, such as `inputs`
        or `signature_name`, it hands on to TensorFlow Serving. Another deployed model may answer a
        request that is retried.
        """
        # Google's client wraps records into protocol buffers, which know no integers, and hands no
        # headers on.
        address = f"{self._address(endpoint)}/v1/{endpoint.name}"
        if set(body) == {"instances"}:
            answer, _ = self._client.post(f"{address}:predict", body, is_retried)
            return answer, str(answer.get("deployedModelId", ""))
        answer, headers = self._client.post(f"{address}:rawPredict", body, is_retried)
        return answer, str(headers.get(_SERVED_BY, ""))

    def check(self, endpoint: Endpoint, deployed: str, share: int, body: Mapping[str, Any]) -> None:
        """Asks until a deployed model with a share of the traffic has answered some times.

        A request cannot choose who answers it, so others are asked as well where they have traffic.
        """
        trial = _Trial(deployed, share)
        while not trial.is_over:
            try:
                answer, by = self.ask(endpoint, body, is_retried=False)
            except UserError as error:
                raise UnhealthyError(f"a request for predictions has failed: {error}") from None
            except RunError as error:
                trial.add_failure(error)
            else:
                trial.add(answer, by)
        trial.check()
        self._say(
            f"{deployed} has answered {trial.answers} of {trial.asked} requests for predictions, "
            "all finite"
        )

    def _address(self, endpoint: Endpoint) -> str:
        """Where an endpoint answers: some have an address of their own, and only that."""
        own = endpoint.dedicated_endpoint_enabled and endpoint.dedicated_endpoint_dns
        return f"https://{own}" if own and not self._client.settings.endpoint else self._client.url


class _Trial:
    """Requests for predictions, of which a deployed model has answered some."""

    def __init__(self, deployed: str, share: int):
        self.asked = self.answers = 0
        self._deployed, self._share = deployed, share
        self._least = _requests(share)
        self._failures = 0
        self._begin = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether no more needs to be asked; waits where that should not be done at once."""
        if self.answers >= _ANSWERS:
            return True
        if self.asked >= self._least:
            if self.answers or time.monotonic() - self._begin >= _SETTLE_SECONDS:
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def add(self, answer: Mapping[str, Any], by: str) -> None:
        self.asked += 1
        if by != self._deployed:
            return
        self.answers += 1
        if wrong := _first_wrong(answer):
            raise UnhealthyError(f"the deployed model {by} has predicted {wrong}")

    def add_failure(self, error: RunError) -> None:
        """Counts a request without an answer, which may have been anybody's."""
        self.asked += 1
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise UnhealthyError(
                f"{self._failures} of {self.asked} requests for predictions have failed: {error}"
            )
        time.sleep(_PAUSE_SECONDS)

    def check(self) -> None:
        """Refuses a deployed model that has never answered."""
        if not self.answers:
            raise UnhealthyError(
                f"none of {self.asked} requests was answered by the deployed model "
                f"{self._deployed}, which has {self._share} % of the traffic"
            )


def _requests(share: int) -> int:
    """How many requests a deployed model with so much traffic surely gets one of."""
    if share >= WHOLE:
        return _ANSWERS
    return max(_ANSWERS, math.ceil(math.log(_ODDS) / math.log(1 - share / WHOLE)))


def _first_wrong(answer: Mapping[str, Any]) -> str:
    """The first value of an answer that is no finite number; empty if there is none."""
    found = answer.get("predictions", answer.get("outputs"))
    if found is None:
        return f"nothing: {json.dumps(answer)[:200]}"
    return next((text for value in _values(found) if (text := _wrong(value))), "")


def _values(found: Any) -> Iterator[Any]:
    if isinstance(found, Mapping):
        found = found.values()
    elif not isinstance(found, list):
        yield found
        return
    for each in found:
        yield from _values(each)


def _wrong(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if value in _NOT_FINITE or value is None else ""
