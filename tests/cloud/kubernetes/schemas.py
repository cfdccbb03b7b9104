"""Holds manifests to the published schemas of their kinds, unknown fields refused.

The schemas are those of packages that their projects publish: kubernetes-validate has Kubernetes'
own, kubeflow-trainer-api has JobSet's and Trainer's, kubeflow-training has TFJob's.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
from kubeflow.training import models as training
from kubeflow_trainer_api.models import (
    JobsetV1alpha2JobSet,
    TrainerV1alpha1TrainingRuntime,
    TrainerV1alpha1TrainJob,
)

KUBERNETES = kubernetes_validate.latest_version()


def check(manifest: dict[str, Any]) -> None:
    """Asserts that a manifest, and every Job and pod in it, is valid."""
    kind = manifest["kind"]
    if kind in _MODELS:
        _check_by_schema(manifest, _model_schema(kind))
    elif kind == "TFJob":
        _check_by_schema(manifest, _tfjob_schema())
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    for embedded in _embedded(manifest):
        kubernetes_validate.validate(embedded, KUBERNETES, strict=True)


def pods(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod template of each role of a job."""
    if jobs := _jobs(manifest):
        return {job["name"]: job["template"]["spec"]["template"] for job in jobs}
    roles = manifest["spec"].get("tfReplicaSpecs", {})
    return {name.lower(): role["template"] for name, role in roles.items()}


def _embedded(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is in a manifest, as objects of Kubernetes' own kinds."""
    metadata = {"name": "x"}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]}
    for job in _jobs(manifest):
        spec = job["template"]["spec"]
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    if manifest["kind"] in ("JobSet", "TFJob", "TrainingRuntime"):
        for pod in pods(manifest).values():
            own = {**metadata, **pod["metadata"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": pod["spec"]}


def _jobs(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The Jobs of a JobSet, be it that of a TrainingRuntime."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    jobs: list[dict[str, Any]] = spec.get("replicatedJobs", [])
    return jobs


def _check_by_schema(manifest: dict[str, Any], schema: dict[str, Any]) -> None:
    errors = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    if error := jsonschema.exceptions.best_match(errors):
        raise AssertionError(f"{error.json_path}: {error.message}")


_MODELS = {
    "JobSet": JobsetV1alpha2JobSet,
    "TrainJob": TrainerV1alpha1TrainJob,
    "TrainingRuntime": TrainerV1alpha1TrainingRuntime,
}


@functools.cache
def _model_schema(kind: str) -> dict[str, Any]:
    schema = _MODELS[kind].model_json_schema(by_alias=True)
    for found in (schema, *schema["$defs"].values()):
        _close(found)
    for name in ("Quantity", "IntOrString"):  # of which the client knows no more than the name
        schema["$defs"] |= {each: {} for each in schema["$defs"] if each.endswith(name)}
    return schema


def _close(schema: dict[str, Any]) -> None:
    """Refuses unknown fields, and values that are not among those that a description lists."""
    if "properties" in schema:
        schema["additionalProperties"] = False
    for field in schema.get("properties", {}).values():
        listed = re.search(r"Valid values are (\w+(?:, \w+)+)\.", field.get("description", ""))
        if listed:
            field["enum"] = listed[1].split(", ")


@functools.cache
def _tfjob_schema() -> dict[str, Any]:
    schema = _schema_of("KubeflowOrgV1TFJob")
    spec = schema["properties"]["spec"]["properties"]
    spec["runPolicy"]["properties"]["cleanPodPolicy"]["enum"] = ["", "All", "Running", "None"]
    roles = spec["tfReplicaSpecs"]
    roles["propertyNames"] = {"enum": ["Chief", "Master", "PS", "Worker", "Evaluator"]}
    restarts = roles["additionalProperties"]["properties"]["restartPolicy"]
    restarts["enum"] = ["Always", "OnFailure", "Never", "ExitCode"]
    return schema


def _schema_of(kind: str) -> dict[str, Any]:
    """The schema of a type as the client's models name it; Kubernetes' own are checked apart."""
    simple = {"str": "string", "int": "integer", "bool": "boolean"}
    if kind in simple:
        return {"type": simple[kind]}
    if match := re.fullmatch(r"dict\(str, (\w+)\)", kind):
        return {"type": "object", "additionalProperties": _schema_of(match[1])}
    if match := re.fullmatch(r"list\[(\w+)\]", kind):
        return {"type": "array", "items": _schema_of(match[1])}
    if not kind.startswith("KubeflowOrg"):
        return {}
    model = getattr(training, kind)
    names = model.attribute_map
    fields = {names[field]: _schema_of(type_) for field, type_ in model.openapi_types.items()}
    return {"type": "object", "properties": fields, "additionalProperties": False}
