"""From an export in a bucket to an endpoint: what is made, and what is made once."""

import json

import pytest

from tests.cloud.vertex.serving.conftest import DEPLOYMENT, check_splits, served, versions
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tfps.storage import objects


def test_a_model_comes_behind_an_endpoint(near, job, serving, deploy):
    code, out, err = deploy(f"--model={job}", *DEPLOYMENT, "--label=team=ads", "--max_replicas=3")
    assert (code, err) == (0, "")
    assert versions(serving) == ["gs://bucket/run/export/3"]
    assert served(serving) == {"3": 100}
    (model,) = serving.models["movies"]
    assert model.labels["team"] == "ads"
    (deployed,) = serving.endpoints["movies"].deployed_models
    assert deployed.dedicated_resources.max_replica_count == 3
    assert "1 to 3 n2-standard-2 for movies cost money for as long as it is deployed" in out
    assert "python -m cloud.deploy undeploy movies --target=vertex --project=my-project" in out
    assert f"{deployed.id} has answered 3 of 3 requests for predictions, all finite" in out
    assert serving.asked[0]["signature_name"] == "serving_examples"
    assert serving.headers.get("Authorization") is None
    check_splits(serving)


def test_a_version_is_uploaded_from_a_directory_of_its_own(serving, deploy_version):
    for number in (3, 2):
        assert deploy_version(number)[0] == 0
    places = [version.artifact_uri for version in serving.models["movies"]]
    assert len(set(places)) == 2
    for place, number in zip(places, (3, 2), strict=True):
        prefix = place.removeprefix("gs://bucket/")
        assert prefix.startswith("run/export/vertex/")
        blobs = {blob.name: blob for blob in objects.client().list_blobs("bucket", prefix=prefix)}
        assert {name.removeprefix(f"{prefix}/").split("/")[0] for name in blobs} == {str(number)}
        graph = blobs[f"{prefix}/{number}/saved_model.pb"].download_as_bytes()
        assert (graph, len(blobs)) == (f"graph {number}".encode(), 5)


def test_the_same_command_again_makes_nothing_new(serving, deploy_version):
    for _ in range(2):
        assert deploy_version(1)[0] == 0
    assert (len(versions(serving)), served(serving)) == (1, {"1": 100})
    made = {kind: serving.counts[kind] for kind in ("upload", "make", "deploy", "undeploy")}
    assert made == {"upload": 1, "make": 1, "deploy": 1, "undeploy": 0}


def test_a_model_that_was_trained_again_in_its_place_is_a_new_version(
    near, serving, deploy, exported
):
    for graph in (b"first", b"second"):
        job = exported(1, job="again", graph=graph)
        assert deploy(f"--model={job}", *DEPLOYMENT)[0] == 0
    assert versions(serving) == ["gs://bucket/again/export/1"] * 2
    (deployed,) = serving.endpoints["movies"].deployed_models
    assert deployed.model_version_id == "2"


def test_other_numbers_of_machines_change_what_is_deployed(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    code, out, _ = deploy_version(1, "--min_replicas=2", "--max_replicas=4")
    assert code == 0
    assert "changing the number of machines" in out
    (deployed,) = serving.endpoints["movies"].deployed_models
    resources = deployed.dedicated_resources
    assert (resources.min_replica_count, resources.max_replica_count) == (2, 4)
    assert (serving.counts["deploy"], serving.counts["mutate"]) == (1, 1)


def test_a_newer_version_takes_the_place_of_the_older(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    code, out, _ = deploy_version(2)
    assert (code, served(serving)) == (0, {"2": 100})
    assert "n2-standard-2 costs nothing any more" in out
    assert {tuple(sorted(split.values())) for split, _ in serving.splits} >= {(10, 90), (100,)}
    assert set(serving.endpoints["movies"].labels) == {"tfps-deployment"}
    check_splits(serving)


def test_a_version_has_further_names_which_move_to_another(serving, deploy_version):
    serving.faults["alias"] = [503, "lost"]
    assert deploy_version(1, "--alias=stable", "--alias=prod")[0] == 0
    first = serving.models["movies"][0]
    assert {"stable", "prod", "default"} < set(first.version_aliases)
    assert deploy_version(2, "--alias=prod")[0] == 0
    second = serving.models["movies"][1]
    assert ("prod" in first.version_aliases, "prod" in second.version_aliases) == (False, True)
    code, out, _ = deploy_version(2, "--alias=stable", "--alias=prod")
    assert (code, serving.counts["upload"]) == (0, 2)
    assert "model movies, version 2, is called stable from now on" in out
    assert {"stable", "prod"} < set(second.version_aliases)
    assert not {"stable", "prod"} & set(first.version_aliases)


@pytest.mark.parametrize("alias", ["Prod", "p", "prod-", "a b", "tfps-x", "1"])
def test_a_name_that_no_version_can_have_is_refused(serving, deploy_version, alias):
    code, _, err = deploy_version(1, f"--alias={alias}")
    assert (code, serving.counts["upload"]) == (2, 0)
    assert f"--alias={alias}: write 2 to 128 letters" in err


def test_an_upload_that_fails_is_told(serving, deploy_version):
    serving.failing["upload"] = "The image cannot be pulled"
    code, _, err = deploy_version(1)
    assert (code, versions(serving), serving.endpoints) == (3, [], {})
    assert "as model movies: The image cannot be pulled" in err


def test_records_may_be_given(serving, deploy_version, tmp_path):
    (tmp_path / "records.json").write_text(json.dumps([{"user": 1, "context": [0.5, 1]}]))
    assert deploy_version(1, f"--instances={tmp_path}/records.json")[0] == 0
    assert serving.asked[0] == {"instances": [{"user": 1, "context": [0.5, 1]}]}


def test_a_bucket_elsewhere_is_refused(cloud, serving, deploy_version):
    cloud.set(locations={"bucket": "EUROPE-WEST4"})
    code, _, err = deploy_version(1)
    assert code == 2
    assert "the bucket lies in europe-west4, but this job runs in us-central1" in err
    assert not serving.counts["upload"]
