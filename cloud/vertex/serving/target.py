"""Models served by Vertex AI: `python -m cloud.deploy --target=vertex`."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from cloud import optional_imports, remote_target
from cloud.deployment.deployment import Deployment, ServerSettings
from cloud.deployment.target import DeployTarget
from cloud.remote_target import PollOptions, say
from cloud.target import Request
from cloud.vertex.checks import VertexSettings
from cloud.vertex.serving import checks, instances
from cloud.vertex.serving.requests import Requests
from tfps.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from cloud.vertex.serving.rollout import Rollout


define_flags = checks.define


def from_flags(values: flags.FlagValues) -> "VertexDeployTarget":
    settings = VertexSettings(
        values.project, values.region, kms_key=values.kms_key, endpoint=values.vertex_endpoint
    )
    polling = PollOptions(values.wait_seconds, values.poll_seconds)
    return VertexDeployTarget(settings, polling, values)


class VertexDeployTarget(DeployTarget):
    """Vertex AI in one project and region."""

    name = "vertex"

    def __init__(self, settings: VertexSettings, polling: PollOptions, values: flags.FlagValues):
        self._settings = settings
        self._polling = polling
        self._values = values

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses flags of other verbs, and what Vertex AI cannot serve whatever the model is."""
        checks.check_verb("deploy", self._values)
        checks.check_servers(servers, base, self._settings)

    def check_here(self) -> None:
        """Looks for the client, and reads the records of a file with which a version is tried."""
        optional_imports.check("google.cloud.aiplatform_v1", "vertex")
        if self._values.instances:
            instances.read(self._values.instances)

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """Requests for the version, the endpoint, and what is deployed to it."""
        return self._requests(deployment).shown(self._values.traffic)

    def deploy(self, deployment: Deployment) -> int:
        """Uploads the version, deploys it, tries it, and takes away what it comes in place of."""
        requests = self._requests(deployment)
        name = deployment.name
        asked = self._values.instances
        records = instances.read(asked) if asked else instances.of_model(deployment.model)
        region = self._region()
        with self._going_on(name):
            version = region.models.upload(requests)
            say(
                f"{requests.machines} for {name} cost money for as long as it is deployed; "
                f"end that with `{self._command('undeploy', name)}`"
            )
            region.endpoints.make(name, requests.endpoint())
            traffic = self._values.traffic
            region.deploy(name, region.candidate(requests, version, records, traffic))
        endpoint = region.endpoints.get(name)
        say(f"{endpoint.name} serves {deployment.model.path}")
        say(f"ask it: {self._command('predict', name)} --instances=FILE.json")
        if len(endpoint.deployed_models) > 1:
            say("the same command without --traffic gives it all traffic")
            say(f"take one away: {self._command('undeploy', name)} --deployed_model=ID")
        return EXIT_OK

    def undeploy(self, name: str) -> int:
        """Takes away one deployed model, or all and the endpoint."""
        checks.check_verb("undeploy", self._values)
        region = self._region()
        with self._going_on(name):
            if self._values.deployed_model:
                region.undeploy(name, self._values.deployed_model)
            else:
                region.undeploy_all(name)
        return EXIT_OK

    def predict(self, name: str) -> int:
        checks.check_verb("predict", self._values)
        if not self._values.instances:
            raise UserError("--instances is missing; give FILE.json, or - for the standard input")
        body = instances.read(self._values.instances)
        region = self._region()
        answer, deployed = region.predictions.ask(region.endpoints.get(name), body)
        say(json.dumps({"deployedModelId": deployed, **answer}, indent=2))
        return EXIT_OK

    def list(self) -> int:
        checks.check_verb("list", self._values)
        for line in self._region().listed():
            say(line)
        return EXIT_OK

    def describe(self, name: str) -> int:
        checks.check_verb("describe", self._values)
        say(remote_target.write(self._region().described(name), "yaml").rstrip("\n"))
        return EXIT_OK

    @contextlib.contextmanager
    def _going_on(self, name: str) -> Iterator[None]:
        """Says after an interrupt how to continue: what Vertex AI has begun, it ends."""
        try:
            yield
        except KeyboardInterrupt:
            say(
                "interrupted; the same command resumes from there, and "
                f"`{self._command('describe', name)}` and the verb list show what there is"
            )
            raise

    def _requests(self, deployment: Deployment) -> Requests:
        checks.check_verb("deploy", self._values)
        checks.check(deployment, self._settings)
        return Requests(deployment, self._settings, self._values.alias)

    def _region(self) -> "Rollout":
        from cloud.vertex.serving.rollout import Rollout  # it loads Google's clients

        return Rollout(self._settings, self._polling, say)

    def _command(self, verb: str, name: str) -> str:
        """How this program is run for the same place again."""
        return f"python -m cloud.deploy {verb} {name} {self._settings.again}"
