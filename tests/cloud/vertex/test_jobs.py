"""The program on the stand-ins of Vertex AI and Cloud Storage: submit, follow, cancel, list."""

import dataclasses
import signal
import subprocess
import sys
import threading
import time

import pytest
import yaml

from cloud.vertex import client
from cloud.vertex.checks import VertexSettings
from tests.cloud.vertex.conftest import ARGUMENTS, CLUSTER, PLACE
from tests.live_view.test_status import run_status
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tests.project import ROOT
from tfps.errors import UserError

SETTINGS = VertexSettings("my-project", "us-central1")
JOB = (*CLUSTER, "--", *ARGUMENTS)
NAME = "projects/my-project/locations/us-central1/customJobs/1000"
BESIDE = "a worker runs next to the chief (--nochief_works behind -- leaves it out)"


def test_a_job_is_sent_once_and_says_how_to_go_on(cloud, vertex, vertex_submit):
    code, out, err = vertex_submit("--label=team=ads", *JOB)
    assert (code, err) == (0, "")
    place = f"{' '.join((PLACE[0], *PLACE[1:]))} --vertex_endpoint={vertex.endpoint}"
    assert out.splitlines() == [
        f"submitted {NAME}",
        BESIDE,
        f"follow: python -m cloud.submit follow {NAME} {place}",
        f"cancel: python -m cloud.submit cancel {NAME} {place}",
    ]
    job = vertex.created
    assert (job.display_name, job.labels["team"]) == ("smoke", "ads")
    pools = job.job_spec.worker_pool_specs
    assert [pool.replica_count for pool in pools] == [1, 2, 1]
    assert {tuple(pool.container_spec.args) for pool in pools} == {("--chief_works", *ARGUMENTS)}
    assert job.job_spec.base_output_directory.output_uri_prefix == "gs://bucket/run"
    assert vertex.counts == {"create": 1}


@pytest.mark.parametrize(
    "faults",
    [[429], [503, 429, 500], ["lost"], ["lost", 503], [503, "lost"], [502, 504, 503, 429, "lost"]],
    ids=str,
)
def test_one_job_however_often_the_request_is_repeated(cloud, vertex, vertex_submit, faults):
    vertex.faults["create"] = list(faults)
    code, out, _ = vertex_submit(*JOB)
    assert code == 0
    assert out.startswith(f"submitted {NAME}\n")
    assert len(vertex.jobs) == 1


def test_a_lost_answer_while_listing_fails_too(cloud, vertex, vertex_submit):
    vertex.faults = {"create": ["lost"], "list": [503, "lost", 429]}
    assert vertex_submit(*JOB)[0] == 0
    assert len(vertex.jobs) == 1


def test_a_request_is_given_up_in_the_end(cloud, vertex, vertex_submit, monkeypatch):
    monkeypatch.setattr(client, "_TRIES_SECONDS", 0.3)
    vertex.faults["create"] = [503] * 100
    code, out, err = vertex_submit(*JOB)
    assert (code, out) == (3, "")
    assert (
        "has not answered for 0.3 s (503 the test wants 503); try again later; the job may" in err
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize(("status", "hint"), [(403, "roles/aiplatform.user"), (400, "correct")])
def test_a_refusal_is_told_at_once(cloud, vertex, vertex_submit, status, hint):
    vertex.faults["create"] = [status]
    code, _, err = vertex_submit(*JOB)
    assert code == 2
    assert err.startswith(f"error: Google Cloud refuses ({status}): the test wants {status}; ")
    assert hint in err
    assert (vertex.counts, vertex.jobs) == ({"create": 1}, {})


def test_waiting_shows_states_and_lines_of_every_task(cloud, vertex, vertex_submit):
    for number, task in enumerate(("service", "workerpool0-0", "workerpool1-1", "workerpool2-0")):
        vertex.write(task, f"line {number}", number)
    vertex.write("workerpool3-0", "", 9, jsonPayload={"message": "two\nlines\n"})
    vertex.write("workerpool0-0", "line 4", 9, labels={"role": "worker", "index": "2"})
    told = {"severity": "INFO", "message": "a line", **run_status().to_json()}
    vertex.write("workerpool0-0", "", 10, jsonPayload=told)
    code, out, err = vertex_submit("--wait", *JOB)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [f"submitted {NAME}", BESIDE]
    own = [line for line in lines if line.startswith("[submit]")]
    states = ("QUEUED", "PENDING", "RUNNING", "SUCCEEDED")
    assert own == [f"[submit] smoke: {state}" for state in states]
    assert [line for line in lines[2:] if line not in own] == [
        "[service] line 0",
        "[chief] line 1",
        "[worker 1] line 2",
        "[ps 0] line 3",
        "[evaluator 0] two",
        "[evaluator 0] lines",
        "[worker 2] line 4",
        f"[chief] {run_status().line}",
    ]
    assert vertex.queries[0]["filter"] == (
        'resource.type="ml_job" AND resource.labels.job_id="1000"'
    )
    assert vertex.queries[1]["pageToken"] == "2"


def test_late_lines_are_shown_once(cloud, vertex, vertex_submit):
    vertex.states = ("RUNNING",)
    vertex.write("workerpool0-0", "old", 40)  # as far back as is looked again
    vertex.write("workerpool0-0", "first", 100)

    def write():
        while len(vertex.queries) < 3:  # what was there at first is shown
            time.sleep(0.01)
        with vertex.lock:
            vertex.write("workerpool1-0", "late", 50)
            vertex.write("workerpool0-0", "second", 101)
            vertex.states = ("RUNNING", "SUCCEEDED")

    writer = threading.Thread(target=write)
    writer.start()
    code, out, _ = vertex_submit("--wait", *JOB)
    writer.join()
    assert code == 0
    shown = [line for line in out.splitlines() if line.startswith(("[chief]", "[worker"))]
    assert shown == ["[chief] old", "[chief] first", "[worker 0] late", "[chief] second"]


def test_a_failed_job_tells_why(cloud, vertex, vertex_submit):
    vertex.states, vertex.error = ("RUNNING", "FAILED"), "The replica workerpool0-0\nexited with 2."
    code, out, err = vertex_submit("--wait", *JOB)
    assert code == 3
    assert err == f"error: {NAME}: FAILED: The replica workerpool0-0 exited with 2.\n"
    assert "[submit] smoke: FAILED" in out


def test_looking_goes_on_through_faults(cloud, vertex, vertex_submit):
    vertex.faults = {"get": [503, "lost", 429], "logs": [503, "lost"]}
    vertex.write("workerpool0-0", "line", 1)
    code, out, _ = vertex_submit("--wait", *JOB)
    assert code == 0
    assert out.count("[chief] line\n") == 1


def test_a_job_is_followed_without_the_right_to_read_its_lines(cloud, vertex, vertex_submit):
    vertex.faults["logs"] = [403] * 100
    code, out, _ = vertex_submit("--wait", *JOB)
    assert code == 0
    (told,) = [line for line in out.splitlines() if "cannot be read" in line]
    assert "roles/logging.viewer" in told
    assert vertex.counts["logs"] == 1


def test_an_outage_leaves_the_job(cloud, vertex, vertex_submit, monkeypatch):
    monkeypatch.setattr(client, "_TRIES_SECONDS", 0.2)
    vertex.faults["get"] = [503] * 100
    code, _, err = vertex_submit("--wait", *JOB)
    assert code == 3
    assert "has not answered for 0.2 s" in err
    assert f"the job continues; follow it with `python -m cloud.submit follow {NAME}" in err


def test_waiting_has_a_limit(cloud, vertex, vertex_submit):
    vertex.states = ("QUEUED",)
    code, _, err = vertex_submit("--wait", "--wait_seconds=0.1", *JOB)
    assert code == 3
    assert f"{NAME} is QUEUED after 0.1 s (--wait_seconds); the job continues; follow it" in err


def start(vertex):
    """Runs the program in a process of its own, which can be interrupted."""
    flags = (*PLACE, f"--vertex_endpoint={vertex.endpoint}", "--poll_seconds=0.05", "--wait")
    return subprocess.Popen(
        [sys.executable, "-m", "cloud.submit", *flags, *JOB],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupt_leaves_the_job(cloud, vertex):
    vertex.states = ("RUNNING",)
    with start(vertex) as program:
        while program.stdout.readline() != "[submit] smoke: RUNNING\n":
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (130, "")
    assert f"[submit] {NAME} continues; follow it with `python -m cloud.submit follow {NAME}" in out
    assert vertex.counts["cancel"] == 0


def test_an_interrupt_while_a_job_is_sent_says_what_is_not_known(cloud, vertex):
    vertex.faults["create"] = ["late"]
    with start(vertex) as program:
        while not vertex.jobs:
            assert program.poll() is None
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
        vertex.released.set()
    assert (program.returncode, err) == (130, "")
    assert out == "interrupted while the job was sent: look with the verb list whether it exists\n"


def test_jobs_are_listed_described_followed_and_ended(cloud, vertex, vertex_submit):
    vertex.states, vertex.page_size = ("RUNNING",), 1
    for name in ("first", "second", "third"):
        assert vertex_submit(f"--name={name}", *JOB)[0] == 0
    vertex.jobs[NAME].labels.clear()  # as one that somebody else has made
    code, out, _ = vertex_submit("list")
    titles = [line.split()[1:3] for line in out.splitlines()]
    assert (code, titles) == (0, [["RUNNING", "third"], ["RUNNING", "second"]])
    code, out, _ = vertex_submit("describe", "1001")
    assert yaml.safe_load(out)["displayName"] == "second"
    assert vertex_submit("cancel", "1001") == (0, "1001: asked to end\n", "")
    code, out, err = vertex_submit("follow", NAME.replace("1000", "1001"))
    assert (code, out) == (3, "[submit] second: CANCELLED\n")
    assert "customJobs/1001: CANCELLED: see `python -m cloud.submit describe" in err


def test_google_gets_the_accounts_token_and_a_stand_in_does_not(cloud, vertex):
    for endpoint, token in (("", "Bearer test"), (vertex.endpoint, None)):
        google = client.Client(dataclasses.replace(SETTINGS, endpoint=endpoint))
        google.post(f"{vertex.endpoint}/v2/entries:list", {"filter": ""})
        assert vertex.headers["Authorization"] == token


def test_a_stand_in_is_not_reached_through_a_proxy(vertex, vertex_submit, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert vertex_submit("list")[0] == 0
    assert vertex.counts == {"list": 1}


def test_expired_credentials_are_told(cloud, vertex):
    cloud.set(faults=(Fault("401", ("token",), fraction=1.0),))
    google = client.Client(SETTINGS)
    with pytest.raises(UserError, match=r"refuses \(401\): .*; get new credentials with `gcloud"):
        google.post(f"{vertex.endpoint}/v2/entries:list", {"filter": ""})
    assert vertex.counts == {}


def test_an_answer_of_somebody_else_is_told(vertex, vertex_submit):
    vertex.faults["list"] = ["page"]
    code, _, err = vertex_submit("list")
    assert code == 3
    assert "answered with something else than JSON, perhaps a proxy did" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("follow", "x"), "'x' is no job; write its number"),
        (("cancel", NAME.replace("us-central1", "europe-west4")), "give --region=europe-west4"),
        (("describe", "7"), "refuses (404)"),
        (("follow",), "write it as `python -m cloud.submit follow JOB"),
        (("list", "1"), "write it as `python -m cloud.submit list"),
        (("list", "--dry_run"), "list takes no --dry_run"),
        (("stop", "1"), "unexpected argument 'stop': verbs are submit, follow, cancel"),
        (("list", "--", "--config=x"), "list takes no arguments of tasks"),
    ],
)
def test_a_wrong_question(vertex, vertex_submit, argv, message):
    code, out, err = vertex_submit(*argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
