"""Models and batch predictions of the stand-in for what Vertex AI serves."""

import re

from google.cloud.aiplatform_v1 import types

from tests.cloud.vertex.fake_operations import FakeOperations
from tests.cloud.vertex.fake_service import PLACE, RefusedError, parsed, shown

JobState = types.JobState
_IMAGE = r"[a-z0-9-]+-docker\.pkg\.dev/.+"


class FakeModels(FakeOperations):
    """Versions of models, and what predicts with them without an endpoint.

    Attributes:
        models: The versions of each model, by the model's id.
        batches: Every batch prediction, by its resource name.
        states: States that a batch prediction goes through, one further at each look.
        datasets: Locations of BigQuery's datasets by their names.
        lasting: States in which a batch prediction stays once it comes there.
        stats: How many records a batch prediction has predicted, at the end.
    """

    def __init__(self):
        super().__init__()
        self.models = {}
        self.batches = {}
        self.states = ("QUEUED", "RUNNING", "SUCCEEDED")
        self.lasting = ()
        self.datasets = {}
        self.stats = {"successful_count": 1000, "failed_count": 0}

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

    def dataset(self, body, query, project, name):
        if name not in self.datasets:
            raise RefusedError(404, f"there is no dataset {project}.{name}")
        return {"location": self.datasets[name]}

    def versions(self, body, query, name):
        if name not in self.models:
            raise RefusedError(404, f"there is no model {name}")
        found = [shown(each) for each in self.models[name]]
        return self.page("models", found, query.get("pageToken"))

    def all_models(self, body, query):
        newest = [versions[-1] for versions in self.models.values()]
        return self.page("models", self._filtered(newest, query), query.get("pageToken"))

    def batch(self, body, query):
        job = types.BatchPredictionJob(parsed(body, types.BatchPredictionJob))
        id_, _, version = job.model.rpartition("/")[2].partition("@")
        self.model({}, {}, id_, "", version)
        job.name = f"{PLACE}/batchPredictionJobs/{self._new()}"
        job.create_time = f"2026-11-21T10:00:{len(self.batches):02}Z"
        job.state = JobState[f"JOB_STATE_{self.states[0]}"]
        self.batches[job.name] = job
        return shown(job)

    def batch_at(self, body, query, number):
        job = self._batch(number)
        found = shown(job)
        steps = [JobState[f"JOB_STATE_{state}"] for state in self.states]
        place = steps.index(job.state) if job.state in steps else len(steps)
        if job.state == JobState.JOB_STATE_CANCELLING and "CANCELLING" not in self.lasting:
            job.state = JobState.JOB_STATE_CANCELLED
        elif place + 1 < len(steps):
            job.state = steps[place + 1]
            if place + 2 == len(steps):
                job.completion_stats = self.stats
                job.output_info.gcs_output_directory = "gs://bucket/out/prediction-1"
        return found

    def all_batches(self, body, query):
        found = self._filtered(self.batches.values(), query)
        return self.page("batchPredictionJobs", found, query.get("pageToken"))

    def cancel(self, body, query, number):
        self._batch(number).state = JobState.JOB_STATE_CANCELLING
        return {}

    def _batch(self, number):
        name = f"{PLACE}/batchPredictionJobs/{number}"
        if name not in self.batches:
            raise RefusedError(404, f"there is no batch prediction {number}")
        return self.batches[name]
