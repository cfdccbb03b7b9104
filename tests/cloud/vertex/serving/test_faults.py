"""Requests that fail, answers that are lost, commands that end half-way: nothing is made twice."""

import io
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.cloud.vertex.conftest import PLACE
from tests.cloud.vertex.serving.conftest import DEPLOYMENT, check_splits, served, versions
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.project import ROOT

KINDS = ("upload", "make", "deploy", "change", "undeploy", "predict", "get", "list", "operation")
FAULTS = ([429], [503, "lost"], ["lost", "lost", 503])


def check_made_once(serving, deploy_version, faults):
    """Deploys two versions, of whose requests some fail."""
    for number in (1, 2):
        serving.faults = {kind: list(each) for kind, each in faults.items()}
        code, _, err = deploy_version(number)
        assert (code, err) == (0, "")
    assert (len(versions(serving)), served(serving)) == (2, {"2": 100})
    assert len(serving.endpoints) == 1
    check_splits(serving)


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_nothing_is_made_twice_when_every_kind_of_request_fails(serving, deploy_version, faults):
    check_made_once(serving, deploy_version, dict.fromkeys(KINDS, faults))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_nothing_is_made_twice_when_one_kind_fails(serving, deploy_version, kind, faults):
    check_made_once(serving, deploy_version, {kind: faults})


def test_scaling_happens_once(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.faults["mutate"] = [503, "lost"]
    assert deploy_version(1, "--max_replicas=2")[0] == 0
    (deployed,) = serving.endpoints["movies"].deployed_models
    assert deployed.dedicated_resources.max_replica_count == 2
    assert [op["kind"] for op in serving.operations.values()].count("mutate") == 1
    assert serving.counts["mutate"] == 2


@pytest.mark.parametrize("kind", ["upload", "make", "deploy", "predict"])
def test_a_refusal_says_which_role_is_missing(serving, deploy_version, kind):
    serving.faults[kind] = [403]
    code, _, err = deploy_version(1)
    assert code == (3 if kind == "predict" else 2)
    assert "Google Cloud refuses (403): the test wants 403" in err
    assert "roles/aiplatform.user" in err
    assert err.count("\n") == 1
    check_splits(serving)


@pytest.mark.parametrize(
    ("kind", "argv"),
    [
        ("undeploy", ("undeploy", "movies")),
        ("delete", ("undeploy", "movies")),
        ("operation", ("undeploy", "movies")),
        ("predict", ("predict", "movies", "--instances=-")),
        ("list", ("list",)),
        ("get", ("describe", "movies")),
    ],
)
def test_no_verb_does_what_is_refused(serving, deploy_version, deploy, monkeypatch, kind, argv):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--traffic=10")[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]"))
    serving.faults[kind] = [403]
    code, _, err = deploy(*argv)
    assert code == 2
    assert "Google Cloud refuses (403): the test wants 403; grant the account" in err
    check_splits(serving)
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]"))
    code, _, err = deploy(*argv)
    assert (code, err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_done_and_fails_traffic_is_whole(serving, deploy_version, deploy, seed):
    """Commands in any order, with requests and operations that fail."""
    chance, asked = random.Random(seed), set()
    for _ in range(10):
        serving.faults = {
            kind: chance.choices([429, 503, "lost"], k=chance.randrange(3)) for kind in KINDS
        }
        if chance.random() < 0.3:
            serving.failing = {chance.choice(["deploy", "undeploy"]): "the test wants it"}
        serving.sick = {"2": chance.choice([None, ["NaN"], 500])}
        number, verb = chance.randint(1, 3), chance.choice(["undeploy", "", ""])
        share = chance.choice([(), ("--traffic=30",)])
        if verb:
            code, _, err = deploy(verb, "movies")
        else:
            code, _, err = deploy_version(number, *share)
            asked.add(number)
        assert code in (0, 2, 3), err
        assert err.count("\n") == (code != 0)
        check_splits(serving)
    assert len(versions(serving)) == len(set(versions(serving))) <= len(asked)
    serving.faults, serving.failing, serving.sick = {}, {}, {}
    assert deploy_version(1)[0] == 0
    code, _, err = deploy("undeploy", "movies")
    assert (code, serving.endpoints) == (0, {})


def hurry(serving):
    """Lets what is under way end soon."""
    serving.looks = 2
    for operation in serving.operations.values():
        operation["looks"] = min(operation["looks"], 2)


def test_what_takes_too_long_goes_on(serving, deploy_version):
    """One command after the other gives up, each at another operation."""
    for kind in ("upload", "make", "deploy"):
        serving.looks = 10_000
        code, _, err = deploy_version(1, "--wait_seconds=0.1")
        assert code == 3
        assert "not done after 0.1 s (--wait_seconds); projects/my-project/" in err
        assert "continues; the same command waits for it again" in err
        assert [op["kind"] for op in serving.operations.values()][-1] == kind
        hurry(serving)
    assert deploy_version(1)[0] == 0
    assert (len(versions(serving)), served(serving)) == (1, {"1": 100})
    assert serving.counts["deploy"] == 1


def test_a_version_that_was_left_half_way_goes_on(serving, deploy_version):
    assert deploy_version(1)[0] == 0
    serving.slow = ("deploy",)
    code, _, err = deploy_version(2, "--wait_seconds=0.1")
    assert (code, served(serving)) == (3, {"1": 100})
    assert "deploying movies@2 to movies" in err
    serving.slow = ()
    hurry(serving)
    assert deploy_version(2)[0] == 0
    assert (served(serving), serving.counts["deploy"]) == ({"2": 100}, 2)
    check_splits(serving)


def test_others_who_change_an_endpoint_meanwhile_lose_nothing(serving, deploy_version, deploy):
    assert deploy_version(1)[0] == 0
    assert deploy_version(2, "--traffic=10")[0] == 0
    serving.meddling = 2
    assert deploy_version(2, "--traffic=30")[0] == 0
    assert served(serving) == {"1": 70, "2": 30}
    assert serving.endpoints["movies"].labels["somebody"] == "else"
    serving.meddling = 100
    code, _, err = deploy_version(2)
    assert code == 3
    assert "is changed by others all the time; try again later" in err


def interrupted(serving, has_happened, *flags):
    """Runs the program in a process of its own, and interrupts it once something has happened.

    Args:
        serving: The stand-in.
        has_happened: Of the last line that the program has written.
        flags: The program's.

    Returns:
        What it writes then.
    """
    place = (*PLACE, f"--vertex_endpoint={serving.endpoint}", "--poll_seconds=0.05")
    with subprocess.Popen(
        [sys.executable, "-m", "cloud.deploy", *flags, *DEPLOYMENT, *place],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        while not has_happened(program.stdout.readline()):
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (130, "")
    return out


@pytest.mark.slow
def test_an_interrupt_leaves_an_operation(near, job, serving, deploy):
    serving.slow = ("deploy",)

    def is_under_way(line):
        if "deploying movies@1 to movies" not in line:
            return False
        while not any(each["kind"] == "deploy" for each in list(serving.operations.values())):
            time.sleep(0.01)
        return True

    out = interrupted(serving, is_under_way, f"--model={job}")
    assert "interrupted; the same command resumes from there, and `python -m cloud.deploy" in out
    for operation in serving.operations.values():
        operation["looks"] = 1
    assert deploy(f"--model={job}", *DEPLOYMENT)[0] == 0
    assert serving.counts["deploy"] == 1
