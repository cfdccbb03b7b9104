"""A stand-in for what Vertex AI serves: models, endpoints, operations.

All are kept as the published protocol buffers. What takes minutes at Google takes some looks here,
and has its effect only then. It refuses what Google would.
"""

import functools
import re

from google.cloud.aiplatform_v1 import types
from google.protobuf import field_mask_pb2

from tests.cloud.vertex.fake_models import FakeModels
from tests.cloud.vertex.fake_service import PLACE, RefusedError, missing, parsed, shown


class FakeServing(FakeModels):
    """Models, endpoints and operations.

    Kinds of requests, of which `faults` may spoil some: upload, make (an endpoint), deploy,
    undeploy, mutate, change (an endpoint), delete, predict, alias, get,
    list, operation.

    Attributes:
        endpoints: Every endpoint, by its id.
        splits: Every split of traffic that any endpoint has had, with what was deployed then.
        sick: What deployed models of a version of a model answer: by its number, a list of
            predictions, or the status of an error.
        unasked: Number of a version that no request reaches, whatever its traffic.
        meddling: So many changes of an endpoint come just after one of somebody else's.
        asked: Bodies of the requests for predictions.
    """

    def __init__(self):
        super().__init__()
        self.endpoints = {}
        self.splits = []
        self.sick = {}
        self.unasked = ""
        self.meddling = 0
        self.asked = []

    def dispatch(self, method, path, query):
        path = path.removeprefix(f"/v1/{PLACE}/")
        for form, kind, verb, answer in _ROUTES:
            match = re.fullmatch(form, path)
            if match and method == verb:
                return kind, functools.partial(self._call, answer, query, match.groups())
        return "unknown", missing

    def _call(self, answer, query, parts, body):
        return getattr(self, answer)(body, query, *parts)

    # Endpoints

    def make(self, body, query):
        endpoint = types.Endpoint(parsed(body, types.Endpoint))
        name = query.get("endpointId") or self._new()
        if name in self.endpoints:
            raise RefusedError(409, f"the endpoint {name} exists")
        endpoint.name = f"{PLACE}/endpoints/{name}"

        def effect():
            if name in self.endpoints:
                raise RefusedError(409, f"the endpoint {name} exists")
            self.endpoints[name] = endpoint
            self._changed(endpoint)
            return {"name": endpoint.name}

        return self._operation("make", f"endpoints/{name}", effect)

    def endpoint_at(self, body, query, name):
        return shown(self._endpoint(name))

    def all_endpoints(self, body, query):
        found = self._filtered(self.endpoints.values(), query)
        return self.page("endpoints", found, query.get("pageToken"))

    def change(self, body, query, name):
        endpoint = self._endpoint(name)
        wanted = types.Endpoint(parsed(body, types.Endpoint))
        mask = field_mask_pb2.FieldMask()
        mask.FromJsonString(query["updateMask"])
        if self.meddling:
            self.meddling -= 1
            endpoint.labels["somebody"] = "else"
            self._changed(endpoint)
        if wanted.etag != endpoint.etag:
            raise RefusedError(409, "the etag is of another state")
        for field in mask.paths:
            if field not in ("traffic_split", "labels"):
                raise RefusedError(400, f"{field} cannot be changed")
            setattr(endpoint, field, getattr(wanted, field))
        self._check_split(endpoint, endpoint.traffic_split)
        self._changed(endpoint)
        return shown(endpoint)

    def delete(self, body, query, name):
        endpoint = self._endpoint(name)
        self._check_idle(name)
        if endpoint.deployed_models:
            raise RefusedError(400, "models are deployed to it")
        return self._operation(
            "delete", f"endpoints/{name}", lambda: self.endpoints.pop(name) and {}
        )

    def deploy(self, body, query, name):
        endpoint = self._endpoint(name)
        self._check_idle(name)
        request = parsed({**body, "endpoint": endpoint.name}, types.DeployModelRequest)
        deployed = types.DeployedModel(request.deployed_model)
        if not re.fullmatch(r"\d{1,10}", deployed.id):
            raise RefusedError(400, f"the id {deployed.id}")
        if deployed.id in [each.id for each in endpoint.deployed_models]:
            raise RefusedError(409, f"the id {deployed.id} is taken")
        resources = deployed.dedicated_resources
        if not 1 <= resources.min_replica_count <= resources.max_replica_count:
            raise RefusedError(400, "the numbers of replicas")
        id_, _, version = deployed.model.rpartition("/")[2].partition("@")
        deployed.model_version_id = self.model({}, {}, id_, "", version)["versionId"]
        deployed.model = f"{PLACE}/models/{id_}"
        split = {
            deployed.id if key == "0" else key: share
            for key, share in request.traffic_split.items()
        }
        self._check_split(endpoint, split, deployed.id)

        def effect():
            endpoint.deployed_models.append(deployed)
            if split:
                endpoint.traffic_split = split
            self._changed(endpoint)
            return {"deployedModel": shown(deployed)}

        return self._operation("deploy", f"endpoints/{name}", effect)

    def undeploy(self, body, query, name):
        endpoint = self._endpoint(name)
        self._check_idle(name)
        request = parsed({**body, "endpoint": endpoint.name}, types.UndeployModelRequest)
        left = [each for each in endpoint.deployed_models if each.id != request.deployed_model_id]
        if len(left) == len(endpoint.deployed_models):
            raise RefusedError(404, f"{request.deployed_model_id} is not deployed")
        split = dict(request.traffic_split) or dict(endpoint.traffic_split)
        if left and split.get(request.deployed_model_id):
            raise RefusedError(400, "it has traffic")
        self._check_split(endpoint, split)

        def effect():
            endpoint.deployed_models = left
            endpoint.traffic_split = split if left else {}
            self._changed(endpoint)
            return {}

        return self._operation("undeploy", f"endpoints/{name}", effect)

    def mutate(self, body, query, name):
        endpoint = self._endpoint(name)
        self._check_idle(name)
        request = parsed({**body, "endpoint": endpoint.name}, types.MutateDeployedModelRequest)
        (deployed,) = (
            each for each in endpoint.deployed_models if each.id == request.deployed_model.id
        )
        wanted = request.deployed_model.dedicated_resources
        fields = ("min_replica_count", "max_replica_count")
        allowed = {f"dedicated_resources.{field}" for field in fields}
        if set(request.update_mask.paths) != allowed:
            raise RefusedError(400, f"{request.update_mask.paths} cannot be changed")

        def effect():
            deployed.dedicated_resources.min_replica_count = wanted.min_replica_count
            deployed.dedicated_resources.max_replica_count = wanted.max_replica_count
            self._changed(endpoint)
            return {}

        return self._operation("mutate", f"endpoints/{name}", effect)

    # Predictions

    def predict(self, body, query, name):
        parsed({**body, "endpoint": f"{PLACE}/endpoints/{name}"}, types.PredictRequest)
        answer, deployed = self._predicted(body, name)
        return {
            **answer,
            "deployedModelId": deployed.id,
            "model": deployed.model,
            "modelVersionId": deployed.model_version_id,
        }

    def raw_predict(self, body, query, name):
        answer, deployed = self._predicted(body, name)
        return answer, {"X-Vertex-AI-Deployed-Model-Id": deployed.id}

    def _predicted(self, body, name):
        """The answer of a deployed model, each of which gets its share of the requests."""
        endpoint = self._endpoint(name)
        if not endpoint.traffic_split:
            raise RefusedError(400, "the endpoint has no traffic")
        self.asked.append(body)
        place, deployed = len(self.asked) * 37 % 100, None
        reached = {
            each.id: endpoint.traffic_split.get(each.id, 0)
            for each in endpoint.deployed_models
            if each.model_version_id != self.unasked
        }
        place %= sum(reached.values())
        for id_, share in sorted(reached.items()):
            deployed = deployed or (id_ if place < share else None)
            place -= share
        (found,) = (each for each in endpoint.deployed_models if each.id == deployed)
        answer = self.sick.get(found.model_version_id)
        if isinstance(answer, int):
            raise RefusedError(answer, "the model does not answer")
        count = len(body.get("instances", body.get("inputs", ())))
        return {"predictions": answer or [0.25] * count}, found

    def _check_idle(self, name):
        if any(not each.get("done") for each in self._of(f"endpoints/{name}")):
            raise RefusedError(400, "another operation is under way at the endpoint")

    def _check_split(self, endpoint, split, newcomer=""):
        known = {each.id for each in endpoint.deployed_models} | {newcomer}
        if split and sum(split.values()) != 100:
            raise RefusedError(400, f"the traffic {dict(split)} does not add up to 100")
        if not set(split) <= known:
            raise RefusedError(400, f"the traffic {dict(split)} names what is not deployed")

    def _changed(self, endpoint):
        endpoint.etag = self._new()
        served = sorted(each.id for each in endpoint.deployed_models)
        self.splits.append((dict(endpoint.traffic_split), served))

    def _endpoint(self, name):
        if name not in self.endpoints:
            raise RefusedError(404, f"there is no endpoint {name}")
        return self.endpoints[name]


def is_whole(split, served):
    """Whether a split is one that Google would have: all of the traffic, of what is deployed."""
    total = sum(split.values())
    return set(split) <= set(served) and (total == 100 if served else total == 0)


_NAME, _NUMBER = r"([a-z0-9-]+)", r"(\d+)"
_ENDPOINT = rf"endpoints/{_NAME}"
# Address, kind, method, and what answers.
_ROUTES = (
    ("models:upload", "upload", "POST", "upload"),
    (rf"models/{_NAME}(@([\w-]+))?", "get", "GET", "model"),
    (rf"models/{_NAME}@{_NUMBER}:mergeVersionAliases", "alias", "POST", "merge_aliases"),
    (rf"models/{_NAME}:listVersions", "list", "GET", "versions"),
    ("models", "list", "GET", "all_models"),
    ("endpoints", "make", "POST", "make"),
    ("endpoints", "list", "GET", "all_endpoints"),
    (_ENDPOINT, "get", "GET", "endpoint_at"),
    (_ENDPOINT, "change", "PATCH", "change"),
    (_ENDPOINT, "delete", "DELETE", "delete"),
    (f"{_ENDPOINT}:deployModel", "deploy", "POST", "deploy"),
    (f"{_ENDPOINT}:undeployModel", "undeploy", "POST", "undeploy"),
    (f"{_ENDPOINT}:mutateDeployedModel", "mutate", "POST", "mutate"),
    (f"{_ENDPOINT}:predict", "predict", "POST", "predict"),
    (f"{_ENDPOINT}:rawPredict", "predict", "POST", "raw_predict"),
    (r"((?:models|endpoints)/[a-z0-9-]+)/operations", "list", "GET", "running"),
    (r"((?:models|endpoints)/[a-z0-9-]+)/operations/(\d+)", "operation", "GET", "operation_at"),
)
