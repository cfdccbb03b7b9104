"""Models of the stand-in for what Vertex AI serves."""

import re

from google.cloud.aiplatform_v1 import types

from tests.cloud.vertex.fake_operations import FakeOperations
from tests.cloud.vertex.fake_service import PLACE, RefusedError, parsed, shown

_IMAGE = r"[a-z0-9-]+-docker\.pkg\.dev/.+"


class FakeModels(FakeOperations):
    """Versions of models.

    Attributes:
        models: The versions of each model, by the model's id.
    """

    def __init__(self):
        super().__init__()
        self.models = {}

    def upload(self, body, query):
        request = parsed({**body, "parent": PLACE}, types.UploadModelRequest)
        model = types.Model(request.model)
        name = request.parent_model.rpartition("/")[2] or request.model_id
        if request.parent_model and name not in self.models:
            raise RefusedError(404, f"{request.parent_model} does not exist")
        if request.model_id and (request.parent_model or name in self.models):
            raise RefusedError(409, f"the model {name} exists")
        if not re.fullmatch(_IMAGE, model.container_spec.image_uri):
            raise RefusedError(400, f"{model.container_spec.image_uri} is in no Artifact Registry")
        if not 0 < model.container_spec.deployment_timeout.total_seconds() <= 7200:
            raise RefusedError(400, "the deployment timeout")

        def effect():
            versions = self.models.setdefault(name, [])
            for alias in model.version_aliases:
                for other in versions:
                    if alias in other.version_aliases:
                        other.version_aliases.remove(alias)
            model.name, model.version_id = f"{PLACE}/models/{name}", str(len(versions) + 1)
            if not versions:
                model.version_aliases.append("default")
            versions.append(model)
            return {"model": model.name, "modelVersionId": model.version_id}

        return self._operation("upload", f"models/{name}", effect)

    def model(self, body, query, name, _, version):
        versions = self.models.get(name, [])
        for each in versions:
            if (version or "default") in (each.version_id, *each.version_aliases):
                return shown(each)
        raise RefusedError(404, f"there is no model {name}@{version}")

    def merge_aliases(self, body, query, name, number):
        self.model({}, {}, name, "", number)
        request = parsed(
            {**body, "name": f"{PLACE}/models/{name}@{number}"}, types.MergeVersionAliasesRequest
        )
        [version] = (each for each in self.models[name] if each.version_id == number)
        for alias in request.version_aliases:
            for other in self.models[name]:
                if alias in other.version_aliases:
                    other.version_aliases.remove(alias)
            version.version_aliases.append(alias)
        return shown(version)

    def versions(self, body, query, name):
        if name not in self.models:
            raise RefusedError(404, f"there is no model {name}")
        found = [shown(each) for each in self.models[name]]
        return self.page("models", found, query.get("pageToken"))

    def all_models(self, body, query):
        newest = [versions[-1] for versions in self.models.values()]
        return self.page("models", self._filtered(newest, query), query.get("pageToken"))
