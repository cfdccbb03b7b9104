"""The requests are those that were reviewed; `make golden` renders them again."""

import json

import pytest
from google.cloud.aiplatform_v1.types import (
    CustomJob,
    DeployModelRequest,
    Endpoint,
    UploadModelRequest,
)
from google.protobuf import json_format

from tests.golden.cases import CASES, DIRECTORY, path, rendered

VERTEX = sorted(name for name in CASES if name.startswith("vertex"))
SERVED = sorted(name for name in CASES if name.startswith("deploy-vertex"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_request_is_as_kept(name):
    assert rendered(name) == path(name).read_text(), "run `make golden` and look at the difference"


def test_every_kept_request_has_its_job():
    assert {file.stem for file in DIRECTORY.glob("*.yaml")} == set(CASES)


# What serves models, by the end of the address.
SERVING_MESSAGES = {
    "models:upload": UploadModelRequest,
    "endpoints?endpointId=census": Endpoint,
    "endpoints/census:deployModel": DeployModelRequest,
}


@pytest.mark.parametrize("name", SERVED)
def test_vertex_understands_every_field_of_what_serves(name):
    decoder, text, kinds = json.JSONDecoder(), rendered(name, "json"), []
    while text:
        request, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        kind = request["POST"].removeprefix(
            "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/"
            "us-central1/"
        )
        found = json_format.ParseDict(request["body"], SERVING_MESSAGES[kind].pb()())
        again = json_format.MessageToDict(found, always_print_fields_with_no_presence=False)
        assert again == request["body"]
        kinds.append(kind)
        if split := request["body"].get("trafficSplit"):
            assert sum(split.values()) == 100
    assert kinds[0] == "models:upload"
    assert len(kinds) == 3


@pytest.mark.parametrize("name", VERTEX)
def test_vertex_understands_every_field(name):
    body = json.loads(rendered(name, "json"))
    found = json_format.ParseDict(body, CustomJob.pb()())
    again = json_format.MessageToDict(found, always_print_fields_with_no_presence=False)
    assert again == _without_defaults(body)


def _without_defaults(part):
    """JSON as protocol buffers give it: values that are the default are not written."""
    if isinstance(part, dict):
        kept = {name: _without_defaults(value) for name, value in part.items()}
        return {name: value for name, value in kept.items() if value is not False}
    return [_without_defaults(each) for each in part] if isinstance(part, list) else part


def test_what_differs_between_machines_is_only_machines():
    cpu, gpu = (json.loads(rendered(f"vertex-{kind}", "json")) for kind in ("cpu", "gpu"))
    for job in (cpu, gpu):
        for pool in job["jobSpec"]["workerPoolSpecs"]:
            del pool["machineSpec"]
            if job is cpu:  # whose chief has a worker's machine
                pool["containerSpec"]["args"].remove("--chief_works")
    assert cpu == gpu
    assert rendered("local-cpu") == rendered("local-gpu")


def test_the_same_program_runs_everywhere():
    local = rendered("local-cpu")
    for pool in json.loads(rendered("vertex-gpu", "json"))["jobSpec"]["workerPoolSpecs"]:
        container = pool["containerSpec"]
        assert container["command"] == ["python", "-m", "trainer.task"]
        program = "\n- ".join([*container["command"], *container["args"]])
        assert local.count(program) == 7
