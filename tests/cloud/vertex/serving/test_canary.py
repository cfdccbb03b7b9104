"""A canary gets some of the traffic, and is promoted, rolled back, or rolls back by itself."""

import pytest
from google.cloud.aiplatform_v1.types import DeployedModel

from tests.cloud.vertex.serving.conftest import IMAGE, check_splits, served, versions
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401


def test_a_canary_is_promoted(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    code, out, _ = deploy_version(2, "--canary=25")
    assert (code, served(serving)) == (0, {"1": 75, "2": 25})
    assert "promote: python -m cloud.deploy promote movies --target=vertex" in out
    for _ in range(2):
        assert deploy("promote", "movies")[0] == 0
        assert served(serving) == {"2": 100}
    check_splits(serving)


GPU = (f"--image={IMAGE}-gpu", "--machine=g2-standard-8", "--accelerator=NVIDIA_L4:1")
ACCOUNT = "--service_account=server@my-project.iam.gserviceaccount.com"


@pytest.mark.parametrize("is_canary", [True, False])
def test_what_served_before_a_promotion_is_brought_back_as_it_was(
    serving, deploy_version, deploy, is_canary
):
    assert deploy_version(1, "--min_replicas=2", "--max_replicas=5", *GPU, ACCOUNT)[0] == 0
    (before,) = serving.endpoints["movies"].deployed_models
    assert deploy_version(2, *(("--canary=25",) if is_canary else ()))[0] == 0
    if is_canary:
        assert deploy("promote", "movies")[0] == 0
    assert served(serving) == {"2": 100}
    code, out, _ = deploy("rollback", "movies")
    assert (code, served(serving)) == (0, {"1": 100})
    assert (
        "bringing back version 1 of movies; 2 to 5 g2-standard-8 with NVIDIA_L4:1 cost mon" in out
    )
    (after,) = serving.endpoints["movies"].deployed_models
    assert f"{after.id} has answered 3 of " in out
    assert after.id != before.id
    assert DeployedModel(DeployedModel.to_dict(after) | {"id": before.id}) == before
    code, out, _ = deploy("rollback", "movies")
    assert (code, served(serving)) == (0, {"1": 100})
    assert "movies was rolled back before; its traffic: 100 % movies (" in out
    assert set(serving.endpoints["movies"].labels) == {"tfps-deployment", "tfps-rolled-back"}
    assert deploy_version(2)[0] == 0
    assert deploy("rollback", "movies")[0] == 0
    assert served(serving) == {"1": 100}
    check_splits(serving)


@pytest.mark.parametrize("kind", ["deploy", "undeploy"])
def test_a_rollback_that_fails_half_way_is_given_again(serving, deploy_version, deploy, kind):
    for number in (1, 2):
        assert deploy_version(number)[0] == 0
    serving.failing[kind] = "internal"
    code, _, err = deploy("rollback", "movies")
    assert (code, "internal" in err) == (3, True)
    expected = {"2": 100} if kind == "deploy" else {"1": 100, "2": 0}
    assert served(serving) == expected
    assert deploy("rollback", "movies")[0] == 0
    assert served(serving) == {"1": 100}
    check_splits(serving)


def test_a_rollback_that_takes_too_long_goes_on_when_given_again(serving, deploy_version, deploy):
    for number in (1, 2):
        assert deploy_version(number)[0] == 0
    serving.slow = ("deploy",)
    code, _, err = deploy("rollback", "movies", "--wait_seconds=0.1")
    assert (code, served(serving), "the same command waits" in err) == (3, {"2": 100}, True)
    for operation in serving.operations.values():
        operation["looks"] = 1
    assert deploy("rollback", "movies")[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"1": 100}, 3)
    check_splits(serving)


def test_a_version_that_comes_back_and_does_not_answer_leaves_what_is_there(
    serving, deploy_version, deploy
):
    for number in (1, 2):
        assert deploy_version(number)[0] == 0
    serving.sick["1"] = ["NaN"]
    code, _, err = deploy("rollback", "movies")
    assert (code, served(serving)) == (3, {"2": 100})
    assert "has predicted NaN; rolled back: the traffic of movies is 100 % movies" in err
    del serving.sick["1"]
    assert deploy("rollback", "movies")[0] == 0
    assert served(serving) == {"1": 100}
    check_splits(serving)


def test_what_served_before_is_tried_with_records_of_its_own_or_with_none(
    serving, deploy_version, deploy, tmp_path
):
    for number in (1, 2):
        assert deploy_version(number)[0] == 0
    (tmp_path / "records.json").write_text('[{"user": 1, "context": [0.5, 1]}]')
    serving.asked.clear()
    assert deploy("rollback", "movies", f"--instances={tmp_path}/records.json")[0] == 0
    assert serving.asked[0] == {"instances": [{"user": 1, "context": [0.5, 1]}]}
    assert deploy_version(2)[0] == 0
    serving.models["movies"][0].artifact_uri = "gs://bucket/gone"
    serving.asked.clear()
    code, out, _ = deploy("rollback", "movies")
    assert (code, served(serving), serving.asked) == (0, {"1": 100}, [])
    assert "no records with which to try version 1: --model=gs://bucket/gone has no numbered" in out
    assert "was asked for no predictions, since no records are known to try it with" in out


def test_there_may_be_nothing_to_bring_back(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    code, _, err = deploy("rollback", "movies")
    assert (code, served(serving)) == (2, {"1": 100})
    assert "has no canary, and nothing is known of what served before; its traffic: 100 %" in err
    assert deploy_version(2)[0] == 0
    del serving.models["movies"][0]
    code, _, err = deploy("rollback", "movies")
    assert code == 2
    assert "version 1 of the model movies, which served before, is deleted; deploy another" in err


def test_a_canary_is_rolled_back(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--canary=5")[0] == 0
    assert served(serving) == {"1": 95, "2": 5}
    assert deploy_version(2, "--canary=40")[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"1": 60, "2": 40}, 2)
    for _ in range(2):
        assert deploy("rollback", "movies")[0] == 0
        assert served(serving) == {"1": 100}
    code, out, _ = deploy("promote", "movies")
    assert (code, served(serving)) == (0, {"1": 100})
    assert "movies has no canary; its traffic: 100 % movies (" in out
    check_splits(serving)


def test_the_same_command_without_a_share_promotes_a_canary(serving, deploy_version):
    for number, flags in ((1, ()), (2, ("--canary=10",)), (2, ())):
        assert deploy_version(number, *flags)[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"2": 100}, 2)
    check_splits(serving)


@pytest.mark.parametrize("share", [0, 40])
def test_what_is_deployed_without_all_traffic_is_tried_and_gets_it(serving, deploy_version, share):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--canary=40")[0] == 0
    endpoint = serving.endpoints["movies"]
    del endpoint.labels["tfps-canary"]  # as somebody else has left it
    first, second = (each.id for each in endpoint.deployed_models)
    endpoint.traffic_split = {first: 100 - share, second: share}
    assert deploy_version(2)[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"2": 100}, 2)
    check_splits(serving)


def test_other_machines_are_another_deployed_model(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    assert deploy_version(1, "--machine=n2-standard-4")[0] == 0
    (deployed,) = serving.endpoints["movies"].deployed_models
    assert deployed.dedicated_resources.machine_spec.machine_type == "n2-standard-4"
    assert (serving.counts["upload"], serving.counts["deploy"]) == (1, 2)
    check_splits(serving)


def test_traffic_is_given_back_as_it_was(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--canary=33")[0] == 0
    del serving.endpoints["movies"].labels["tfps-canary"]  # as one that is no canary any more
    assert deploy_version(3, "--canary=50")[0] == 0
    assert served(serving)["3"] == 50
    assert deploy("rollback", "movies")[0] == 0
    assert served(serving) == {"1": 67, "2": 33}
    check_splits(serving)


@pytest.mark.parametrize(
    ("answer", "told", "canary"),
    [
        (["NaN"], "has predicted NaN", ("--canary=10",)),
        ([{"ctr": [0.5, float("inf")]}], "has predicted inf", ()),
        (500, "requests for predictions have failed: 127.0.0.1", ("--canary=10",)),
        (400, "a request for predictions has failed", ()),
    ],
    ids=str,
)
def test_a_version_that_does_not_answer_is_rolled_back(
    serving, deploy_version, answer, told, canary
):
    assert deploy_version(1)[0] == 0
    serving.sick["2"] = answer
    code, out, err = deploy_version(2, *canary)
    assert (code, served(serving)) == (3, {"1": 100})
    assert told in err
    assert "rolled back: the traffic of movies is 100 % movies" in err
    assert err.count("\n") == 1
    assert "costs nothing any more" in out
    assert set(serving.endpoints["movies"].labels) == {"tfps-deployment", "tfps-rolled-back"}
    check_splits(serving)


def test_a_version_that_does_not_start_is_rolled_back(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.failing["deploy"] = "Model server terminated"
    code, _, err = deploy_version(2, "--canary=10")
    assert (code, served(serving)) == (3, {"1": 100})
    assert "Model server terminated; rolled back: the traffic of movies is 100 % movies" in err
    assert deploy_version(2, "--canary=10")[0] == 0
    assert (served(serving), len(versions(serving))) == ({"1": 90, "2": 10}, 2)
    check_splits(serving)


def test_a_version_that_gets_no_request_is_rolled_back(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.unasked = "2"
    code, _, err = deploy_version(2, "--canary=50")
    assert (code, served(serving)) == (3, {"1": 100})
    assert "requests was answered by the deployed model" in err
    assert "which has 50 % of the traffic; rolled back" in err


def test_the_first_version_that_does_not_answer_is_taken_away(serving, deploy_version):
    serving.sick["1"] = ["NaN"]
    code, _, err = deploy_version(1)
    assert (code, served(serving)) == (3, {})
    assert "rolled back: the traffic of movies is none" in err
    check_splits(serving)


def test_an_older_version_that_is_sick_is_no_fault_of_the_canary(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.sick["1"] = ["NaN"]
    assert deploy_version(2, "--canary=10")[0] == 0
    assert served(serving) == {"1": 90, "2": 10}


def test_a_rollback_that_fails_says_what_to_do(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.sick["2"] = ["NaN"]
    serving.failing["undeploy"] = "internal"
    code, _, err = deploy_version(2)
    assert code == 3
    assert "has predicted NaN; it could not be rolled back either: undeploying movies" in err
    assert "give `rollback movies` or `undeploy movies` again" in err
    assert {key: share for key, share in served(serving).items() if share} == {"1": 100}
    check_splits(serving)


def test_an_older_version_that_cannot_be_taken_away_is_when_asked_again(
    serving, deploy_version, deploy
):
    assert deploy_version(1)[0] == 0
    serving.failing["undeploy"] = "internal"
    code, _, err = deploy_version(2)
    assert (code, served(serving)) == (3, {"1": 0, "2": 100})
    assert "undeploying movies (" in err
    assert deploy("promote", "movies")[0] == 0
    assert served(serving) == {"2": 100}
    check_splits(serving)


def test_a_second_canary_is_refused(serving, deploy_version):
    for number, flags in ((1, ()), (2, ("--canary=10",))):
        assert deploy_version(number, *flags)[0] == 0
    code, _, err = deploy_version(3)
    assert (code, served(serving)) == (2, {"1": 90, "2": 10})
    assert "movies has a canary, movies (" in err
    assert "end that first, with the verb promote or rollback" in err


def test_a_canary_with_nothing_beside_it_gets_all_traffic(serving, deploy_version):
    told = "--canary=10: movies serves nothing else that would take the rest of the traffic"
    for _ in range(2):
        code, out, _ = deploy_version(1, "--canary=10")
        assert (code, served(serving), told in out) == (0, {"1": 100}, True)
    assert serving.counts["deploy"] == 1
    code, out, _ = deploy_version(2, "--canary=10")
    assert (code, served(serving), told in out) == (0, {"1": 90, "2": 10}, False)
    check_splits(serving)
