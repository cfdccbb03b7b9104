"""Models served by Vertex AI: `python -m cloud.deploy --target=vertex`."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from absl import flags

from cloud import remote_target
from cloud.deployment.deployment import Deployment, ServerSettings
from cloud.deployment.target import DeployTarget
from cloud.remote_target import Patience
from cloud.target import Request
from cloud.vertex.serving import checks, instances, traffic
from cloud.vertex.serving.endpoints import Endpoint, deployed_models, split_of, title
from cloud.vertex.serving.requests import Region, Requests
from cloud.vertex.serving.rollout import Candidate, Undeployment
from cloud.vertex.settings import VertexSettings
from tfps.errors import EXIT_OK, UserError


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of this target."""
    checks.define(values)


def from_flags(values: flags.FlagValues) -> "VertexDeployTarget":
    """The target that the flags of `define_flags` describe."""
    settings = VertexSettings(values.project, values.region, kms_key=values.kms_key)
    patience = Patience(values.wait_seconds, values.poll_seconds)
    return VertexDeployTarget(settings, patience, values)


class VertexDeployTarget(DeployTarget):
    """Vertex AI in one project and region."""

    name = "vertex"

    def __init__(self, settings: VertexSettings, patience: Patience, values: flags.FlagValues):
        self._settings = settings
        self._patience = patience
        self._values = values
        self._endpoint = values.vertex_endpoint.rstrip("/")

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses flags of other verbs, and what Vertex AI cannot serve whatever the model is."""
        checks.check_verb("deploy", self._values)
        checks.check_servers(servers, base, self._settings)

    def check_here(self) -> None:
        """Reads the records with which the version is to be tried, where a file has them."""
        if self._values.instances:
            instances.read(self._values.instances)

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """Requests for the version, the endpoint, and what is deployed to it."""
        checks.check_verb("deploy", self._values)
        checks.check(deployment, self._settings)
        requests = Requests(deployment, self._settings, self._values.alias)
        return requests.shown(self._values.traffic)

    def deploy(self, deployment: Deployment) -> int:
        """Uploads the version, deploys it, tries it, and takes away what it comes in place of."""
        checks.check_verb("deploy", self._values)
        checks.check(deployment, self._settings)
        requests = Requests(deployment, self._settings, self._values.alias)
        name = deployment.name
        asked = self._values.instances
        records = instances.read(asked) if asked else instances.of_model(deployment.model)
        region = self._region()
        with self._going_on(name):
            version = self._upload(deployment, requests, region)
            _say(
                f"{requests.machines.shown} for {name} cost money for as long as it is deployed; "
                f"end that with `{self._command('undeploy', name)}`"
            )
            region.endpoints.make(name, requests.endpoint())
            candidate = Candidate(name, version, requests.deploy({}), records, self._values.traffic)
            region.rollout.deploy(name, candidate)
        endpoint = region.endpoints.get(name)
        _say(f"{endpoint['name']} serves {deployment.model.path}")
        _say(f"ask it: {self._command('predict', name)} --instances=FILE.json")
        if len(deployed_models(endpoint)) > 1:
            _say(f"traffic: {_served(endpoint)}; the same command without --traffic gives it all")
            _say(f"take one away: {self._command('undeploy', name)} --deployed_model=ID")
        return EXIT_OK

    def undeploy(self, name: str) -> int:
        """Takes away one deployed model, or all and the endpoint."""
        checks.check_verb("undeploy", self._values)
        region = self._region()
        undeployment = Undeployment(region.endpoints, region.wait, _say)
        with self._going_on(name):
            if self._values.deployed_model:
                undeployment.of_one(name, self._values.deployed_model)
            else:
                undeployment.of_all(name)
        return EXIT_OK

    def predict(self, name: str) -> int:
        """Asks an endpoint for predictions and prints the answer as JSON."""
        checks.check_verb("predict", self._values)
        if not self._values.instances:
            raise UserError("--instances is missing; give FILE.json, or - for the standard input")
        body = instances.read(self._values.instances)
        region = self._region()
        answer, deployed = region.predictions.ask(region.endpoints.get(name), body)
        _say(json.dumps({"deployedModelId": deployed, **answer}, indent=2))
        return EXIT_OK

    def list(self) -> int:
        """Prints the endpoints and models that were made by this program."""
        checks.check_verb("list", self._values)
        region = self._region()
        for endpoint in region.endpoints.made_here():
            _say(f"endpoint {endpoint['displayName']}: {_served(endpoint)}  {endpoint['name']}")
        for model in region.models.made_here():
            _say(f"model {model['displayName']}  {model['name']}")
        return EXIT_OK

    def describe(self, name: str) -> int:
        """Prints what Vertex AI says of an endpoint and of its model's versions, as YAML."""
        checks.check_verb("describe", self._values)
        region = self._region()
        endpoint = region.endpoints.get(name)
        versions = region.models.versions(name) if region.models.look(name) else []
        _say(remote_target.write([endpoint, *versions], "yaml").rstrip("\n"))
        return EXIT_OK

    @contextlib.contextmanager
    def _going_on(self, name: str) -> Iterator[None]:
        """Says after an interrupt how to go on: what Vertex AI has begun, it ends."""
        try:
            yield
        except KeyboardInterrupt:
            _say(
                "interrupted; the same command goes on from there, and "
                f"`{self._command('describe', name)}` and the verb list show what there is"
            )
            raise

    def _upload(self, deployment: Deployment, requests: Requests, region: Region) -> str:
        """Uploads the version, unless it is there; returns its number."""
        from cloud.vertex.serving import artifact  # it loads the client of Google Cloud Storage

        region.check_place("--model", deployment.model.path)
        if not region.models.look(deployment.name, requests.version.alias):
            artifact.stage(deployment.model, requests.version.artifact)
        return str(region.models.upload(requests.version)["versionId"])

    def _region(self) -> Region:
        return Region(self._settings, self._endpoint, self._patience, _say)

    def _command(self, verb: str, name: str) -> str:
        """How this program is run for the same place again."""
        place = f"--target=vertex --project={self._settings.project}"
        endpoint = f" --vertex_endpoint={self._endpoint}" if self._endpoint else ""
        program = f"python -m cloud.deploy {verb} {name}"
        return f"{program} {place} --region={self._settings.region}{endpoint}"


def _served(endpoint: Endpoint) -> str:
    names: dict[str, Any] = {key: title(each) for key, each in deployed_models(endpoint).items()}
    return traffic.shown({names[key]: share for key, share in split_of(endpoint).items()})


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the verbs are for
