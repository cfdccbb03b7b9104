"""What labels of an endpoint can tell of a version that served before, and what they cannot."""

import re

import pytest

from cloud.vertex.serving.previous import Previous, forgotten

PLAIN = {"machineSpec": {"machineType": "n2-standard-2"}, "minReplicaCount": 1}
GPUS = {
    "machineSpec": {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 2,
    },
    "minReplicaCount": 2,
    "maxReplicaCount": 12,
}


def deployed(resources, **fields):
    model = {"model": "projects/p/locations/l/models/movies", "modelVersionId": "7"}
    return {**model, "dedicatedResources": resources, **fields}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (deployed(PLAIN), "1 n2-standard-2"),
        (deployed(GPUS), "2 to 12 n1-standard-8 with NVIDIA_TESLA_T4:2"),
        (
            deployed(PLAIN, model="projects/p/locations/l/models/1_2@7", modelVersionId=""),
            "1 n2-st",
        ),
        (deployed(PLAIN, serviceAccount="a-b@my-project.iam.gserviceaccount.com"), "1 n2-stand"),
        (deployed(PLAIN, serviceAccount="a@p.example.com.iam.gserviceaccount.com"), "1 n2-stand"),
    ],
)
def test_labels_tell_all_that_brings_it_back(given, shown):
    found = Previous.of_deployed(given)
    assert found.version == "7"
    assert found.machines.shown.startswith(shown)
    assert found.service_account == given.get("serviceAccount", "")
    labels = found.labels()
    for name, value in labels.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", name)
        assert re.fullmatch(r"[a-z0-9_-]{1,63}", value)
    assert Previous.of_endpoint({"labels": {"team": "ads", **labels}}) == found
    assert forgotten({"team": "ads", **labels}) == {"team": "ads"}


@pytest.mark.parametrize(
    "given",
    [
        {"model": "projects/p/locations/l/models/movies", "automaticResources": {}},
        deployed(PLAIN, model="projects/p/locations/l/models/Movies"),
        deployed(PLAIN, serviceAccount=f"a@{'x' * 64}.iam.gserviceaccount.com"),
        deployed(PLAIN, serviceAccount="a_b@my-project.iam.gserviceaccount.com"),
    ],
    ids=["other machines", "capitals", "too long", "another sign"],
)
def test_what_they_cannot_tell_is_not_half_told(given):
    assert Previous.of_deployed(given) is None


@pytest.mark.parametrize("labels", [{}, {"tfps-previous-model": "movies"}])
def test_labels_that_tell_too_little_tell_nothing(labels):
    assert Previous.of_endpoint({"labels": labels}) is None
