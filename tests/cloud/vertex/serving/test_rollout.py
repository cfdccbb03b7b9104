"""A version gets some of the traffic or all of it, and is taken away if it does not answer."""

import pytest

from tests.cloud.vertex.serving.conftest import check_splits, served, versions
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401


def test_the_same_command_without_a_share_gives_all_traffic(serving, deploy_version):
    for number, flags in ((1, ()), (2, ("--traffic=10",)), (2, ())):
        assert deploy_version(number, *flags)[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"2": 100}, 2)
    check_splits(serving)


@pytest.mark.parametrize("share", [0, 40])
def test_what_is_deployed_without_all_traffic_is_tried_and_gets_it(serving, deploy_version, share):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--traffic=40")[0] == 0
    endpoint = serving.endpoints["movies"]
    first, second = (each.id for each in endpoint.deployed_models)
    endpoint.traffic_split = {first: 100 - share, second: share}
    assert deploy_version(2)[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"2": 100}, 2)
    check_splits(serving)


def test_other_machines_are_another_deployed_model(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    assert deploy_version(1, "--machine=type=n2-standard-4")[0] == 0
    (deployed,) = serving.endpoints["movies"].deployed_models
    assert deployed.dedicated_resources.machine_spec.machine_type == "n2-standard-4"
    assert (serving.counts["upload"], serving.counts["deploy"]) == (1, 2)
    check_splits(serving)


@pytest.mark.parametrize(
    ("answer", "told", "share"),
    [
        (["NaN"], "has predicted NaN", ("--traffic=10",)),
        ([{"ctr": [0.5, float("inf")]}], "has predicted inf", ()),
        (500, "requests for predictions have failed: 127.0.0.1", ("--traffic=10",)),
        (400, "a request for predictions has failed", ()),
    ],
    ids=str,
)
def test_a_version_that_does_not_answer_is_taken_away(serving, deploy_version, answer, told, share):
    assert deploy_version(1)[0] == 0
    serving.sick["2"] = answer
    code, out, err = deploy_version(2, *share)
    assert (code, served(serving)) == (3, {"1": 100})
    assert told in err
    assert "it is taken away: the traffic of movies is 100 % movies" in err
    assert err.count("\n") == 1
    assert "costs nothing any more" in out
    assert set(serving.endpoints["movies"].labels) == {"tfps-deployment"}
    check_splits(serving)


def test_a_version_that_does_not_start_is_taken_away(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.failing["deploy"] = "Model server terminated"
    code, _, err = deploy_version(2, "--traffic=10")
    assert (code, served(serving)) == (3, {"1": 100})
    assert "Model server terminated; it is taken away: the traffic of movies is 100 % movies" in err
    assert deploy_version(2, "--traffic=10")[0] == 0
    assert (served(serving), len(versions(serving))) == ({"1": 90, "2": 10}, 2)
    check_splits(serving)


def test_a_version_that_gets_no_request_is_taken_away(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.unasked = "2"
    code, _, err = deploy_version(2, "--traffic=50")
    assert (code, served(serving)) == (3, {"1": 100})
    assert "requests was answered by the deployed model" in err
    assert "which has 50 % of the traffic; it is taken away" in err


def test_the_first_version_that_does_not_answer_is_taken_away(serving, deploy_version):
    serving.sick["1"] = ["NaN"]
    code, _, err = deploy_version(1)
    assert (code, served(serving)) == (3, {})
    assert "it is taken away: the traffic of movies is none" in err
    check_splits(serving)


def test_an_older_version_that_is_sick_is_no_fault_of_the_new_one(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.sick["1"] = ["NaN"]
    assert deploy_version(2, "--traffic=10")[0] == 0
    assert served(serving) == {"1": 90, "2": 10}


def test_a_failure_to_take_away_says_what_to_do(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.sick["2"] = ["NaN"]
    serving.failing["undeploy"] = "internal"
    code, _, err = deploy_version(2)
    assert code == 3
    assert "has predicted NaN; it could not be taken away either: undeploying movies" in err
    assert "give `undeploy movies --deployed_model=" in err
    assert {key: share for key, share in served(serving).items() if share} == {"1": 100}
    check_splits(serving)


def test_an_older_version_that_cannot_be_taken_away_is_when_asked_again(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.failing["undeploy"] = "internal"
    code, _, err = deploy_version(2)
    assert (code, served(serving)) == (3, {"1": 0, "2": 100})
    assert "undeploying movies (" in err
    assert deploy_version(2)[0] == 0
    assert served(serving) == {"2": 100}
    check_splits(serving)


def test_a_share_with_nothing_else_served_gets_all_traffic(serving, deploy_version):
    told = "--traffic=10: movies serves nothing else that would take the rest of the traffic"
    for _ in range(2):
        code, out, _ = deploy_version(1, "--traffic=10")
        assert (code, served(serving), told in out) == (0, {"1": 100}, True)
    assert serving.counts["deploy"] == 1
    code, out, _ = deploy_version(2, "--traffic=10")
    assert (code, served(serving), told in out) == (0, {"1": 90, "2": 10}, False)
    check_splits(serving)


def test_a_share_is_changed_and_taken_back(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    for share in (5, 40):
        code, out, _ = deploy_version(2, f"--traffic={share}")
        assert (code, served(serving)) == (0, {"1": 100 - share, "2": share})
    assert "the same command without --traffic gives it all" in out
    assert serving.counts["deploy"] == 2
    assert deploy_version(3, "--traffic=50")[0] == 0
    assert served(serving) == {"1": 30, "2": 20, "3": 50}
    newest = serving.endpoints["movies"].deployed_models[2].id
    assert deploy("undeploy", "movies", f"--deployed_model={newest}")[0] == 0
    assert served(serving) == {"1": 60, "2": 40}
    check_splits(serving)


def test_one_with_all_traffic_that_does_not_answer_stays(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.sick["1"] = ["NaN"]
    code, _, err = deploy_version(1)
    assert (code, served(serving)) == (3, {"1": 100})
    assert "has predicted NaN; nothing was changed" in err
