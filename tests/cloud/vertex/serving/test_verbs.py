"""What is served is asked, listed, described and taken away."""

import io
import json

import pytest
import yaml
from google.cloud.aiplatform_v1.types import DeployedModel, Endpoint

from tests.cloud.vertex.fake_service import PLACE
from tests.cloud.vertex.serving.conftest import check_splits, served
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401


@pytest.fixture(name="two")
def two_fixture(serving, deploy_version):
    """An endpoint with two deployed models; returns their ids."""
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--traffic=20")[0] == 0
    serving.asked.clear()
    return [each.id for each in serving.endpoints["movies"].deployed_models]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('[{"user": 1}, {"user": 2}]', {"instances": [{"user": 1}, {"user": 2}]}),
        ('{"user": 1}', {"instances": [{"user": 1}]}),
        ('{"user": 1}\n{"user": 2}\n', {"instances": [{"user": 1}, {"user": 2}]}),
        ('{"instances": [1, 2]}', {"instances": [1, 2]}),
        ('{"inputs": {"user": [1]}}', {"inputs": {"user": [1]}}),
    ],
    ids=["list", "one", "lines", "request", "columns"],
)
def test_an_endpoint_is_asked(two, serving, deploy, monkeypatch, text, sent):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    serving.faults["predict"] = [503, "lost"]
    code, out, err = deploy("predict", "movies", "--instances=-")
    assert (code, err, serving.asked[-1]) == (0, "", sent)
    answer = json.loads(out)
    assert answer["predictions"] == [0.25] * len(sent.get("instances", sent.get("inputs")))
    assert answer["deployedModelId"] in two


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON (Expecting property name"),
        ("1\n{", "line 2 is not JSON"),
        ("5", "a int is no request; write a list of instances"),
        ("[]", "has no instance; write a list of instances"),
        ("", "is not JSON"),
    ],
)
def test_a_request_that_is_none(serving, deploy, tmp_path, text, message):
    (tmp_path / "records.json").write_text(text)
    code, out, err = deploy("predict", "movies", f"--instances={tmp_path}/records.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not serving.counts


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("predict", "movies"), "--instances is missing; give FILE.json, or -"),
        (("predict", "movies", "--instances=absent.json"), "--instances=absent.json cannot be"),
        (("undeploy", "movies", "--traffic=5"), "--traffic is of deploy; leave it out of un"),
        (
            ("list", "--instances=x"),
            "--instances is of deploy, predict; leave it out of li",
        ),
    ],
)
def test_a_wrong_question(serving, deploy, argv, message):
    code, out, err = deploy(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("verb", ["describe", "undeploy"])
def test_an_endpoint_that_is_not_there_names_those_that_are(serving, deploy, verb):
    code, _, err = deploy(verb, "movies")
    assert code == 2
    assert "there is no endpoint movies in projects/my-project" in err
    assert "there is none at all" in err
    for name in ("films", "music"):
        serving.endpoints[name] = Endpoint(name=f"{PLACE}/endpoints/{name}", display_name=name)
    code, _, err = deploy(verb, "movies")
    assert (code, "there are films, music" in err) == (2, True)


def test_an_endpoint_that_somebody_else_has_made_is_found_by_its_title(
    serving, deploy_version, deploy
):
    own = Endpoint(name=f"{PLACE}/endpoints/123", display_name="movies", etag="1")
    serving.endpoints["123"] = own
    assert deploy_version(1)[0] == 0
    (deployed,) = own.deployed_models
    assert dict(own.traffic_split) == {deployed.id: 100}
    assert list(serving.endpoints) == ["123"]
    assert deploy("undeploy", "movies")[0] == 0
    assert list(serving.endpoints) == ["123"]  # which is not this program's
    serving.endpoints["124"] = Endpoint(name=f"{PLACE}/endpoints/124", display_name="movies")
    code, _, err = deploy("describe", "movies")
    assert (code, "several endpoints are called movies; name one by its id" in err) == (2, True)


def test_what_is_served_is_listed_and_described(two, serving, deploy):
    serving.faults["list"] = [429, "lost"]
    code, out, _ = deploy("list")
    assert code == 0
    assert out.splitlines() == [
        f"endpoint movies: 80 % movies ({two[0]}), 20 % movies ({two[1]})  "
        f"{PLACE}/endpoints/movies",
        f"model movies  {PLACE}/models/movies",
    ]
    code, out, _ = deploy("describe", "movies")
    endpoint, *versions = yaml.safe_load_all(out)
    assert (code, endpoint["trafficSplit"]) == (0, {two[0]: 80, two[1]: 20})
    assert [version["versionId"] for version in versions] == ["2", "1"]


def test_one_of_two_is_taken_away(two, serving, deploy):
    serving.faults["undeploy"] = [503, "lost"]
    code, out, _ = deploy("undeploy", "movies", f"--deployed_model={two[1]}")
    assert (code, served(serving)) == (0, {"1": 100})
    assert f"movies ({two[1]}) is undeployed: n2-standard-2 costs nothing any more" in out
    assert set(serving.endpoints["movies"].labels) == {"tfps-deployment"}
    code, _, err = deploy("undeploy", "movies", f"--deployed_model={two[1]}")
    assert code == 2
    assert f"--deployed_model={two[1]} is not deployed to movies, but movies ({two[0]})" in err
    check_splits(serving)


def test_the_one_with_all_traffic_stays_while_others_are_there(two, serving, deploy):
    serving.endpoints["movies"].deployed_models.append(
        DeployedModel(id="5", model=f"{PLACE}/models/movies", model_version_id="1")
    )
    serving.endpoints["movies"].traffic_split = {two[0]: 100}
    code, _, err = deploy("undeploy", "movies", f"--deployed_model={two[0]}")
    assert code == 2
    assert f"--deployed_model={two[0]} has all traffic of movies" in err
    assert not serving.counts["undeploy"]


def test_everything_is_taken_away(two, serving, deploy):
    serving.faults = {"undeploy": [503], "delete": ["lost", 503]}
    code, out, _ = deploy("undeploy", "movies")
    assert (code, serving.endpoints) == (0, {})
    assert out.count("costs nothing any more") == 2
    assert "the versions of the model movies stay" in out
    check_splits(serving)
    code, _, err = deploy("undeploy", "movies")
    assert (code, "there is no endpoint movies" in err) == (2, True)
