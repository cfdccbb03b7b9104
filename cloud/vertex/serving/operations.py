"""What Vertex AI does for minutes: operations, followed to their end."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cloud.follower import Patience
from cloud.vertex.rest import RefusedError, Rest
from tfps.errors import RunError

_SECONDS_BETWEEN_LINES = 60.0
_MISSING = 404


class OperationFailedError(RunError):
    """An operation that Vertex AI has ended without its effect."""


class Operations:
    """The operations of a region."""

    def __init__(self, rest: Rest, url: str, patience: Patience, say: Callable[[str], None]):
        self._rest = rest
        self._url = url
        self._patience = patience
        self._say = say

    def running(self, resource: str) -> list[dict[str, Any]]:
        """The operations on a resource that have not ended."""
        address, query = f"{self._url}/{resource}/operations", {"pageSize": "100"}
        try:
            found = list(self._rest.listed(address, "operations", query))
        except RefusedError as error:
            if error.status != _MISSING:
                raise
            return []
        return [each for each in found if not each.get("done")]

    def wait_for_others(self, resource: str, what: str) -> None:
        """Waits until none is running on a resource, however they end."""
        for operation in self.running(resource):
            try:
                self.wait(operation, f"{what}: an operation that an earlier command has begun")
            except OperationFailedError as error:
                self._say(str(error))

    def wait(self, operation: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Follows an operation to its end.

        Args:
            operation: What a request has been answered with; one that has ended is not looked at
                again.
        """
        name = str(operation.get("name", ""))
        begin = told = time.monotonic()
        try:
            while not operation.get("done"):
                now = time.monotonic()
                if now - begin >= self._patience.limit_seconds:
                    raise RunError(
                        f"{what}: not done after {self._patience.limit_seconds:g} s "
                        f"(--wait_seconds); {_goes_on(name)}"
                    )
                if now - told >= _SECONDS_BETWEEN_LINES:
                    told = now
                    self._say(f"{what}: {now - begin:.0f} s")
                time.sleep(self._patience.poll_seconds)
                operation = self._rest.get(f"{self._url}/{name}")
        except KeyboardInterrupt:
            self._say(f"{what}: interrupted; {_goes_on(name)}")
            raise
        if error := operation.get("error"):
            text = " ".join(str(error.get("message", "")).split()) or f"code {error.get('code')}"
            raise OperationFailedError(f"{what}: {text}")
        return dict(operation.get("response", {}))


def _goes_on(name: str) -> str:
    return f"{name} goes on; the same command waits for it again"
