"""What Vertex AI would refuse is refused before anything is sent."""

import dataclasses

import pytest

from cloud.deployment.deployment import Deployment
from cloud.deployment.served_model import ServedModel
from cloud.vertex import machines
from cloud.vertex.serving import checks
from cloud.vertex.serving.batch_request import BatchData
from cloud.vertex.serving.requests import Requests
from cloud.vertex.settings import VertexSettings
from tests.cloud.vertex.serving.conftest import FEATURES, IMAGE, SIGNATURES
from tfps.data.feature import Feature
from tfps.errors import UserError

SETTINGS = VertexSettings("my-project", "us-central1")
MODEL = ServedModel(
    base="gs://bucket/run/export",
    version=3,
    versions=(3,),
    features=FEATURES,
    labels=(),
    signatures=SIGNATURES,
    variables_bytes=10 << 30,
    has_warm_up=True,
    digest="d" * 64,
)
GOOD = Deployment("movies", MODEL, image=IMAGE, machine="n2-standard-4")
EXAMPLES = {"serving_default": "examples"}
FEATURES_ALONE = {"signatures": {"serving_default": "features"}}
TAGS = Feature("tags", "int64", (None,))


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
        ({"machine": ""}, "--machine is missing; the model needs some 12.5 GiB of memory: give"),
        ({"machine": ""}, "--machine=n2-standard-4, or a larger one"),
        ({"machine": "n2-standard-2"}, "--machine=n2-standard-2: gs://bucket/run/export/3 with"),
        ({"machine": "a2-highgpu-1g"}, "has NVIDIA_TESLA_A100:1, not none; correct --machine"),
        (
            {"machine": "n2-standard-4", "accelerator": "NVIDIA_L4", "accelerators": 1},
            "n2-standard-4 cannot have a NVIDIA_L4; it comes with g2-standard-4",
        ),
        (
            {"machine": "g2-standard-8", "accelerator": "NVIDIA_L4", "accelerators": 1},
            "which has no CUDA; take a copy of tensorflow/serving",
        ),
        ({"cpus": 4}, "Vertex AI has no --cpus, only machine types; give --machine"),
        ({"memory_bytes": 1 << 30}, "Vertex AI has no --memory, only machine types"),
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


def data(form, **changes):
    inputs = ("bq://p.d.t",) if form == "bigquery" else ("gs://bucket/f",)
    return BatchData(inputs, "gs://bucket/out", form, **changes)


@pytest.mark.parametrize(
    ("form", "changes", "message"),
    [
        ("jsonl", {}, ""),
        ("bigquery", {}, ""),
        ("csv", {}, "as a list without names, which only a model of one feature"),
        ("tf-record", FEATURES_ALONE, "must take examples, but that of gs://bucket/run/export/3"),
        ("tf-record-gzip", FEATURES_ALONE, "--instances_format=tf-record-gzip: such requests go"),
        ("file-list", FEATURES_ALONE, "must take examples"),
        ("jsonl", {"signatures": EXAMPLES}, ""),
        ("tf-record", {"signatures": EXAMPLES}, ""),
        ("bigquery", {"signatures": EXAMPLES}, "must take features"),
        ("csv", {"features": (Feature("x", "float32", (3,)),)}, ""),
        ("csv", {"features": (Feature("x", "float32"),)}, "one feature with several values"),
        ("file-list", {"features": (Feature("image", "string"),)}, ""),
        ("tf-record", {"features": (Feature("image", "string"),)}, ""),
        ("jsonl", {"features": (*FEATURES, TAGS)}, "tags is of varying length"),
        ("tf-record", {"features": (*FEATURES, TAGS), "signatures": EXAMPLES}, ""),
    ],
)
def test_formats_that_tell_a_models_features(form, changes, message):
    model = dataclasses.replace(MODEL, **changes)
    if not message:
        assert checks.of_batch(model, data(form)) == model
        return
    with pytest.raises(UserError) as caught:
        checks.of_batch(model, data(form))
    assert message in str(caught.value)


@pytest.mark.parametrize("features", [FEATURES, (*FEATURES, TAGS)])
@pytest.mark.parametrize("form", ["tf-record", "tf-record-gzip", "file-list"])
def test_serialized_examples_go_to_another_model_than_features(form, features):
    model = dataclasses.replace(MODEL, features=features)
    found = checks.of_batch(model, data(form))
    assert found.signatures == {"serving_default": "examples", "serving_examples": "features"}
    assert (found.is_exchanged, found.has_warm_up, found.path) == (True, False, model.path)
    assert found.digest not in ("", model.digest)
    assert found == checks.of_batch(model, data(form))
    by_default = Requests(GOOD, SETTINGS).version
    by_example = Requests(dataclasses.replace(GOOD, model=found), SETTINGS).version
    assert by_example.alias != by_default.alias
    assert by_example.artifact != by_default.artifact
    assert by_example.source == "gs://bucket/run/export/3 for serialized examples"


@pytest.mark.parametrize(
    ("inputs", "form"),
    [
        (("gs://bucket/a.jsonl", "gs://bucket/c/*.jsonl"), "jsonl"),
        (("gs://bucket/a.tfrecord",), "tf-record"),
        (("gs://bucket/a.tfrecord.gz",), "tf-record-gzip"),
        (("gs://bucket/a.csv",), "csv"),
        (("bq://p.d.t",), "bigquery"),
    ],
)
def test_names_tell_the_format(inputs, form):
    assert BatchData(inputs, "gs://bucket/out").instances_format == form


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            ((), "gs://bucket/out"),
            "--input is missing; give gs:// files or bq://PROJECT.DATASET.TABLE",
        ),
        ((("/a.csv",), "gs://bucket/out"), "--input=/a.csv: write gs://BUCKET/FILE or bq://"),
        (
            (("bq://p.d.t", "gs://bucket/a.csv"), "gs://bucket/out"),
            "give one table alone, or files",
        ),
        ((("gs://bucket/a.csv",), ""), "--predictions=: write gs://BUCKET/PATH, or bq://PROJECT"),
        (
            (("gs://bucket/a",), "gs://bucket/out"),
            "--instances_format is missing, since the names of",
        ),
        (
            (("gs://bucket/a.csv", "gs://bucket/b.jsonl"), "gs://bucket/out"),
            "--instances_format is missing",
        ),
        (
            (("gs://bucket/a",), "gs://bucket/out", "bigquery"),
            "gs://bucket/a is no table; correct one of",
        ),
        ((("bq://p.d.t",), "gs://bucket/out", "csv"), "bq://p.d.t is a table; correct one of them"),
        (
            (("gs://bucket/a",), "gs://bucket/out", "file-list", "id"),
            "--key=id: a file has no fields",
        ),
    ],
)
def test_data_that_cannot_be(fields, message):
    with pytest.raises(UserError) as caught:
        BatchData(*fields)
    assert message in str(caught.value)
