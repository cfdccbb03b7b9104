"""What Vertex AI would refuse is refused before anything is sent."""

import dataclasses

import pytest

from cloud.deployment.deployment import Deployment
from cloud.deployment.served_model import ServedModel
from cloud.vertex import checks as machines
from cloud.vertex.checks import VertexSettings
from cloud.vertex.serving import checks
from tests.cloud.vertex.serving.conftest import FEATURES, IMAGE
from tfps.errors import UserError

SETTINGS = VertexSettings("my-project", "us-central1")
MODEL = ServedModel(
    base="gs://bucket/run/export",
    version=3,
    versions=(3,),
    features=FEATURES,
    variables_bytes=10 << 30,
    has_warm_up=True,
    digest="d" * 64,
)
GOOD = Deployment("movies", MODEL, image=IMAGE, machine="n2-standard-4")


def test_a_good_deployment_passes():
    checks.check(GOOD, SETTINGS)
    gpu = {"machine": "g2-standard-8", "accelerator": "NVIDIA_L4", "accelerators": 1}
    checks.check(dataclasses.replace(GOOD, image=f"{IMAGE}-gpu", **gpu), SETTINGS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": dataclasses.replace(MODEL, base="/runs/movies/export")},
            "Vertex AI reads models from gs://; copy /runs/movies/export there",
        ),
        (
            {"image": "tensorflow/serving:2.20.0"},
            "--image=tensorflow/serving:2.20.0: Vertex AI takes images from Artifact Registry",
        ),
        ({"image": "us-docker.pkg.dev/p/r/"}, "takes images from Artifact Registry alone"),
        (
            {"machine": ""},
            "--machine=type=… is missing; the model needs some 12.5 GiB of memory: give",
        ),
        ({"machine": ""}, "--machine=type=n2-standard-4, or a larger one"),
        (
            {"machine": "n2-standard-2"},
            "--machine=type=n2-standard-2: gs://bucket/run/export/3 with",
        ),
        ({"machine": "a2-highgpu-1g"}, "has NVIDIA_TESLA_A100:1, not none; correct --machine"),
        (
            {"machine": "n2-standard-4", "accelerator": "NVIDIA_L4", "accelerators": 1},
            "n2-standard-4 cannot have a NVIDIA_L4; it comes with g2-standard-4",
        ),
        (
            {"machine": "g2-standard-8", "accelerator": "NVIDIA_L4", "accelerators": 1},
            "which has no CUDA; take a copy of tensorflow/serving",
        ),
        ({"cpus": 4}, "Vertex AI has no --machine=cpus=…, only machine types; give --machine"),
        ({"memory_bytes": 1 << 30}, "Vertex AI has no --machine=memory=…, only machine types"),
        ({"max_batch_size": 64}, "computes each request alone; leave it out"),
        ({"service_account": "me"}, "--service_account=me: write its e-mail address"),
    ],
)
def test_a_bad_deployment_is_refused(changes, message):
    with pytest.raises(UserError) as caught:
        checks.check(dataclasses.replace(GOOD, **changes), SETTINGS)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("machine", "gib"),
    [
        ("n1-standard-4", 15),
        ("n2-highmem-8", 64),
        ("g2-standard-8", 32),
        ("a2-highgpu-2g", 170),
        ("a3-ultragpu-8g", 2952),
        ("m1-ultramem-40", 960),
        ("x9-standard-4", 0),
        ("nonsense", 0),
    ],
)
def test_memory_of_machine_types(machine, gib):
    assert machines.memory_bytes(machine) == gib << 30


def test_every_machine_with_gpus_has_its_memory():
    assert all(machines.memory_bytes(name) > 0 for name in machines.BUILT_IN)
    needed = [0, 20 << 30, 100 << 30, 900 << 30, 2000 << 30]
    assert [machines.smallest(each) for each in needed] == [
        *("n2-standard-2", "n2-standard-8", "n2-highmem-16", "m1-ultramem-40", ""),
    ]
