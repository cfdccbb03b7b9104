"""What `cloud.deploy` asks of a platform."""

import abc
from typing import ClassVar

from cloud.deployment.deployment import Deployment, ServerSettings
from cloud.target import Request
from tfps.errors import UserError

# Verbs that take a deployment's name, and all verbs.
OF_NAME = ("describe", "undeploy", "rollback", "predict")
VERBS = ("deploy", *OF_NAME, "list")


class DeployTarget(abc.ABC):
    """A platform with its own settings, such as a namespace.

    `check` and `render` are pure: they need no credentials, no network and no
    client package. Everything that reaches the platform is in the other methods, which import its
    client when they are called. Each of them waits for what it has asked for, with a limit, says
    how far that is, and may be repeated. Before something is made that costs money, it says what.

    A target has the verbs whose methods it defines.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses flags that could deploy no model; `base` (a path or `gs://`) may come later."""

    def check_here(self) -> None:  # noqa: B027 - most targets need no more than tfps does
        """Looks whether this machine has what deploys: a platform's client, files of flags."""

    @abc.abstractmethod
    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """The requests that put a model behind an address, in their order."""

    @abc.abstractmethod
    def deploy(self, deployment: Deployment) -> int:
        """Puts a model behind an address, or another model in the place of one; returns 0."""

    def list(self) -> int:
        """Prints the deployments that were made by this program; returns 0."""
        raise self._without("list")

    def describe(self, name: str) -> int:
        """Prints what the platform says of a deployment; returns 0."""
        raise self._without("describe")

    def undeploy(self, name: str) -> int:
        """Ends a deployment and what it costs; returns 0."""
        raise self._without("undeploy")

    def rollback(self, name: str) -> int:
        """Puts what was deployed before in the place of what is deployed now; returns 0."""
        raise self._without("rollback")

    def predict(self, name: str) -> int:
        """Asks a deployment for predictions and prints them; returns 0."""
        raise self._without("predict")

    @property
    def verbs(self) -> tuple[str, ...]:
        own = type(self)
        return tuple(
            verb for verb in VERBS if getattr(own, verb) is not getattr(DeployTarget, verb)
        )

    def _without(self, verb: str) -> UserError:
        return UserError(
            f"--target={self.name} has no {verb}; its verbs are {', '.join(self.verbs)}"
        )
