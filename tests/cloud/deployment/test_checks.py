"""What is refused before anything is sent."""

import dataclasses

import pytest

from cloud.deployment import served_model
from cloud.deployment.deployment import Deployment, default_name
from cloud.deployment.served_model import ServedModel
from tests.cloud.deployment.exports import FEATURES, RAGGED
from tfps.errors import UserError

GIB = 1 << 30
MODEL = ServedModel(
    base="gs://bucket/runs/my_job.v2/export",
    version=3,
    versions=(2, 3),
    features=FEATURES,
    variables_bytes=10 * GIB,
    has_warm_up=True,
)


def test_a_server_needs_more_than_the_variables_and_twice_while_it_changes_versions():
    assert served_model.memory_needed(MODEL) == GIB // 2 + 12 * GIB
    assert served_model.memory_needed(MODEL, versions=2) == GIB // 2 + 24 * GIB
    served_model.check_memory(MODEL, 16 * GIB, "--machine=type=n2-standard-4")
    with pytest.raises(UserError) as error:
        served_model.check_memory(MODEL, 16 * GIB, "--machine=type=n2-standard-4", versions=2)
    assert str(error.value) == (
        "--machine=type=n2-standard-4: 2 versions "
        "of gs://bucket/runs/my_job.v2/export/3 with variables "
        "of 10 GiB need some 24.5 GiB of memory, but a server has 16 GiB; take a larger one, or "
        "export the model with --train.export_dtype=bfloat16 or int8"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "My-model"}, "--name=My-model: write 1 to 40 lowercase letters"),
        ({"name": "m", "labels": {"a/b/c": "ads"}}, "--label=a/b/c=ads"),
        ({"name": "m", "image": ""}, "--image is empty"),
        ({"name": "m", "min_replicas": 3, "max_replicas": 2}, "--max_replicas=2 is less than"),
        (
            {
                "name": "m",
                "max_batch_size": 2,
                "model": dataclasses.replace(MODEL, features=RAGGED),
            },
            "--max_batch_size=2: the model has features of varying length, whose requests",
        ),
    ],
)
def test_what_no_platform_can_deploy(changes, message):
    with pytest.raises(UserError) as error:
        Deployment(**{"model": MODEL, **changes})
    assert message in str(error.value)


def test_a_deployment_is_named_after_its_job():
    assert default_name(MODEL.base) == "my-job-v2"
    assert default_name("/model") == "model"


def test_replicas_in_words():
    assert Deployment("m", MODEL).replicas == "1 replica"
    assert Deployment("m", MODEL, min_replicas=2, max_replicas=2).replicas == "2 replicas"
    assert Deployment("m", MODEL, max_replicas=4).replicas == "1 to 4 replicas"
