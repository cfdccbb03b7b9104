"""Models served by Vertex AI: `python -m cloud.deploy --target=vertex`."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from absl import flags

from cloud import requests_text
from cloud.deployment.deployment import Deployment
from cloud.deployment.server_settings import ServerSettings
from cloud.deployment.target import DeployTarget
from cloud.follower import Patience
from cloud.target import Request
from cloud.vertex.serving import batches, checks, instances, traffic
from cloud.vertex.serving.batch_request import FORMATS, BatchData
from cloud.vertex.serving.canary import canary_of
from cloud.vertex.serving.endpoints import Endpoint, deployed_models, split_of, title
from cloud.vertex.serving.region import Region
from cloud.vertex.serving.requests import Requests
from cloud.vertex.serving.rollout import Candidate
from cloud.vertex.serving.undeployment import Undeployment
from cloud.vertex.settings import VertexSettings
from tfps.errors import EXIT_OK, UserError

_TEXTS = {
    "project": "Vertex AI: id of the project, which is billed.",
    "region": "Vertex AI: region of the servers, such as us-central1.",
    "kms_key": "Vertex AI: key, projects/P/locations/L/keyRings/R/cryptoKeys/K.",
    "vertex_endpoint": "Vertex AI: http://127.0.0.1:PORT of a stand-in for Google's APIs; needs no "
    "credentials.",
    "instances": "Vertex AI: file with records that are predicted, - for the standard input.",
    "deployed_model": "Vertex AI: id of what undeploy takes away; default: everything.",
    "predictions": "Vertex AI, batch: gs://BUCKET/PATH or bq://PROJECT.DATASET for predictions.",
    "key": "Vertex AI, batch: field that predictions are written with, not the whole record.",
}

# Verbs that heed a flag; any other refuses it. Flags that are not here hold for all.
_OF_VERBS = {
    "canary": ("deploy",),
    "instances": ("deploy", "predict"),
    "deployed_model": ("undeploy",),
    "input": ("batch",),
    "instances_format": ("batch",),
    "predictions": ("batch",),
    "key": ("batch",),
    "request_records": ("batch",),
}


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of this target.

    Args:
        values: Where to.
    """
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_integer(
        "canary",
        traffic.WHOLE,
        "Vertex AI: percents of the traffic for the new version, until it is promoted.",
        lower_bound=1,
        upper_bound=traffic.WHOLE,
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "input",
        [],
        "Vertex AI, batch: gs:// file, * in its name for several, or bq://PROJECT.DATASET.TABLE.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "instances_format", "", ["", *FORMATS], "Vertex AI, batch: of --input.", flag_values=values
    )
    flags.DEFINE_integer(
        "request_records",
        0,
        "Vertex AI, batch: records of a request to a server; 0: its choice.",
        lower_bound=0,
        flag_values=values,
    )


def from_flags(values: flags.FlagValues) -> "VertexDeployTarget":
    """The target that the flags of `define_flags` describe.

    Args:
        values: Parsed flags, --wait_seconds and --poll_seconds among them.

    Raises:
        UserError: If they cannot be used.
    """
    settings = VertexSettings(values.project, values.region, kms_key=values.kms_key)
    patience = Patience(values.wait_seconds, values.poll_seconds)
    return VertexDeployTarget(settings, patience, values)


class VertexDeployTarget(DeployTarget):
    """Vertex AI in one project and region."""

    name = "vertex"

    def __init__(self, settings: VertexSettings, patience: Patience, values: flags.FlagValues):
        """Describes where models are served.

        Args:
            settings: The project and region.
            patience: How long to wait for each thing, and how often to look.
            values: The other flags of `define_flags`.
        """
        self._settings = settings
        self._patience = patience
        self._values = values
        self._endpoint = values.vertex_endpoint.rstrip("/")

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses flags of other verbs, and what Vertex AI cannot serve whatever the model is."""
        self._check_flags("deploy")
        checks.check_servers(servers, base, self._settings)

    def check_here(self) -> None:
        """Reads the records with which the version is to be tried, where a file has them."""
        if self._values.instances:
            instances.read(self._values.instances)

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """Requests for the version, the endpoint, and what is deployed to it."""
        self._check_flags("deploy")
        checks.check(deployment, self._settings)
        return Requests(deployment, self._settings).shown(self._values.canary)

    def deploy(self, deployment: Deployment) -> int:
        """Uploads the version, deploys it, tries it, and takes away what it comes in place of."""
        self._check_flags("deploy")
        checks.check(deployment, self._settings)
        requests, name = Requests(deployment, self._settings), deployment.name
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
            candidate = Candidate(name, version, requests.deploy({}), records, self._values.canary)
            region.rollout.deploy(name, candidate)
        endpoint = region.endpoints.get(name)
        _say(f"{endpoint['name']} serves {deployment.model.path}")
        _say(f"ask it: {self._command('predict', name)} --instances=FILE.json")
        if canary_of(endpoint):
            for verb in ("promote", "rollback"):
                _say(f"{verb}: {self._command(verb, name)}")
        return EXIT_OK

    def render_batch(self, deployment: Deployment) -> tuple[Request, ...]:
        """Requests for the version, and for the job that predicts."""
        return Requests(deployment, self._settings).shown_batch(self._data(deployment))

    def batch(self, deployment: Deployment) -> int:
        """Uploads the version, and follows the job that predicts with it to its end."""
        data = self._data(deployment)
        requests, region = Requests(deployment, self._settings), self._region()
        self._check_buckets("--input", *data.inputs)
        self._check_buckets("--predictions", data.output)
        with self._going_on(deployment.name):
            self._upload(deployment, requests, region)
            _say(f"{requests.machines.shown} for {deployment.name} cost money until the job ends")
            job = region.batches.begin(requests.batch(data))
        end = f"end it with `{self._command('cancel', job)}`"
        _say(f"{job}: {end}")
        again = f"the same command follows it again; {end}"
        _say(f"predictions: {batches.output_of(region.batches.follow(job, again))}")
        return EXIT_OK

    def cancel(self, name: str) -> int:
        """Asks for the end of a batch prediction."""
        self._check_flags("cancel")
        self._region().batches.cancel(name)
        _say(f"{name}: asked to end")
        return EXIT_OK

    def promote(self, name: str) -> int:
        """Gives the canary all traffic, and takes away everything else."""
        self._check_flags("promote")
        with self._going_on(name):
            self._region().rollout.promote(name)
        return EXIT_OK

    def rollback(self, name: str) -> int:
        """Gives the canary's traffic back, and takes it away."""
        self._check_flags("rollback")
        with self._going_on(name):
            self._region().rollout.rollback(name)
        return EXIT_OK

    def undeploy(self, name: str) -> int:
        """Takes away one deployed model, or all and the endpoint."""
        self._check_flags("undeploy")
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
        self._check_flags("predict")
        if not self._values.instances:
            raise UserError("--instances is missing; give FILE.json, or - for the standard input")
        body = instances.read(self._values.instances)
        region = self._region()
        answer, deployed = region.predictions.ask(region.endpoints.get(name), body)
        _say(json.dumps({"deployedModelId": deployed, **answer}, indent=2))
        return EXIT_OK

    def list(self) -> int:
        """Prints the endpoints, models and batch predictions that were made by this program."""
        self._check_flags("list")
        region = self._region()
        for endpoint in region.endpoints.made_here():
            _say(f"endpoint {endpoint['displayName']}: {_served(endpoint)}  {endpoint['name']}")
        for model in region.models.made_here():
            _say(f"model {model['displayName']}  {model['name']}")
        for job in region.batches.made_here():
            _say(f"batch {batches.shown(job)}")
        return EXIT_OK

    def describe(self, name: str) -> int:
        """Prints what Vertex AI says of an endpoint and of its model's versions, as YAML."""
        self._check_flags("describe")
        region = self._region()
        endpoint = region.endpoints.get(name)
        versions = region.models.versions(name) if region.models.look(name) else []
        _say(requests_text.write([endpoint, *versions], "yaml").rstrip("\n"))
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

    def _check_flags(self, verb: str) -> None:
        """Refuses flags that a verb would pass over."""
        for flag, verbs in _OF_VERBS.items():
            if self._values[flag].present and verb not in verbs:
                raise UserError(f"--{flag} is of {' and '.join(verbs)}; leave it out of {verb}")

    def _data(self, deployment: Deployment) -> BatchData:
        self._check_flags("batch")
        checks.check(deployment, self._settings)
        mine = self._values
        data = BatchData(
            tuple(mine.input),
            mine.predictions,
            mine.instances_format,
            mine.key,
            mine.request_records,
        )
        checks.check_batch(deployment.model, data)
        return data

    def _upload(self, deployment: Deployment, requests: Requests, region: Region) -> str:
        """Uploads the version, unless it is there; returns its number."""
        from cloud.vertex.serving import artifact  # it loads the client of Google Cloud Storage

        self._check_buckets("--model", deployment.model.path)
        if not region.models.look(deployment.name, requests.version.alias):
            artifact.stage(deployment.model, requests.version.artifact)
        return str(region.models.upload(requests.version)["versionId"])

    def _check_buckets(self, flag: str, *paths: str) -> None:
        from cloud.vertex import staging

        for path in paths:
            staging.check_region(flag, path, self._settings.region)

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
