"""Submits through the real kubectl to a server that checks what it gets."""

import pytest

from cloud import submit
from cloud.kubernetes.kubectl import Kubectl
from cloud.kubernetes.manifests import JOBSET
from cloud.kubernetes.sender import KubernetesSender
from cloud.kubernetes.target import KINDS
from tests.cloud.kubernetes.fake_cluster import FakeCluster, status

TASKS = ["--", "--config=configs/smoke.py", "--job_dir=gs://bucket/run"]
JOB = ["--name=trial", "--image=registry/tfps:1", "--workers=2", "--ps=1"]
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/research/networkpolicies"
NOTHING = "there is no jobset nothing of this program in the context's namespace"
CONFIG_MAPS = "/api/v1/namespaces/research/configmaps"
SECOND = "2026-11-21T10:00:0"
BAD_FIELD = "spec.timeoutSeconds: Invalid value: -1"  # no timeout, which would be waited for
LABELS = {
    "jobset": {
        "jobset.sigs.k8s.io/jobset-name": "trial",
        "jobset.sigs.k8s.io/replicatedjob-name": "worker",
        "jobset.sigs.k8s.io/job-index": "1",
    },
    "trainjob": {
        "jobset.sigs.k8s.io/jobset-name": "trial",
        "jobset.sigs.k8s.io/replicatedjob-name": "worker",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "1",
    },
    "tfjob": {
        "training.kubeflow.org/job-name": "trial",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    },
}


@pytest.fixture(name="cluster")
def cluster_fixture(tmp_path, monkeypatch):
    monkeypatch.setattr("cloud.target._WAITS", (0.0, 0.0))
    with FakeCluster() as cluster:
        cluster.install(tmp_path, monkeypatch)
        yield cluster


def run(verb, *flags, target="jobset"):
    own = ["submit", *verb.split(), f"--target={target}", "--poll_seconds=0.05", *flags]
    return submit.main(own)


def send(*flags, target="jobset"):
    return run("submit", *JOB, *flags, *TASKS, target=target)


def pod(target, restarts=0, state="running", uid="pod-1"):
    return {
        "metadata": {"name": uid, "uid": uid, "labels": LABELS[target]},
        "spec": {"containers": [{"name": KINDS[target].container}]},
        "status": {
            "containerStatuses": [
                {
                    "name": KINDS[target].container,
                    "image": "i",
                    "imageID": "i",
                    "ready": True,
                    "restartCount": restarts,
                    "state": {state: {}} if state != "terminated" else {state: {"exitCode": 0}},
                }
            ]
        },
    }


def conditions(*types):
    return {"conditions": [{"type": each, "status": "True", "message": "why"} for each in types]}


@pytest.mark.parametrize(
    ("target", "kind", "plural"),
    [
        ("jobset", "JobSet", "jobsets"),
        ("trainjob", "TrainJob", "trainjobs"),
        ("tfjob", "TFJob", "tfjobs"),
    ],
)
def test_a_job_is_made_behind_its_policy_and_tied_to_it(cluster, capfd, target, kind, plural):
    assert send(target=target) == 0
    runtime = ["TrainingRuntime"] if target == "trainjob" else []
    assert cluster.kinds() == ["NetworkPolicy", *runtime, kind]
    *parts, job = cluster.objects.values()
    for each in parts:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == (kind, job["metadata"]["uid"])
    said = capfd.readouterr().out
    assert "submitted trial" in said
    assert f"python -m cloud.submit cancel trial --target={target}" in said

    assert run("list", target=target) == 0
    assert f"Pending     {target} trial  trial" in capfd.readouterr().out
    assert run("describe trial", target=target) == 0
    assert f"kind: {kind}" in capfd.readouterr().out
    assert run("cancel trial", target=target) == 0
    assert cluster.objects == {}
    assert any(each.startswith("DELETE") and f"/{plural}/" in each for each in cluster.requests)


def test_a_large_job_comes_with_its_cluster_which_goes_with_it(cluster):
    large = ["--workers=800", "--ps=100"]
    assert send(*large) == 0
    assert cluster.kinds() == ["NetworkPolicy", "ConfigMap", "JobSet"]
    *owned, job = cluster.objects.values()
    for each in owned:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("JobSet", job["metadata"]["uid"])
    assert send(*large) == 2  # the first is left alone
    assert len(cluster.objects) == 3
    assert run("cancel trial") == 0
    assert cluster.objects == {}


def others_object(kind, name, **fields):
    """An object that somebody else has made."""
    return {"kind": kind, "metadata": {"name": name, "uid": f"{kind} {name}"}, **fields}


def test_cancel_leaves_alone_what_others_have_made(cluster, capfd):
    theirs = {
        f"{JOBSETS}/redis": others_object("JobSet", "redis"),
        f"{POLICIES}/redis": others_object("NetworkPolicy", "redis"),
        f"{CONFIG_MAPS}/redis-cluster": others_object("ConfigMap", "redis-cluster"),
        f"{CONFIG_MAPS}/trial-cluster": others_object("ConfigMap", "trial-cluster"),
    }
    cluster.objects |= theirs
    assert run("cancel redis") == 2
    assert "there is no jobset redis of this program in the context's" in capfd.readouterr().err
    assert send() == 0
    assert run("cancel trial") == 0
    assert cluster.objects == theirs


def test_a_name_that_others_use_is_refused(cluster, capfd):
    cluster.objects[f"{POLICIES}/trial"] = others_object("NetworkPolicy", "trial")
    assert send() == 2
    error = capfd.readouterr().err
    assert "already, which this program has not made; give another --name\n" in error


def test_annotations_of_a_patch_are_sent(cluster, tmp_path):
    patch = tmp_path / "patch.yaml"
    patch.write_text("kind: JobSet\nmetadata: {annotations: {team: ads}}\n")
    assert send(f"--patch={patch}") == 0
    *_, job = cluster.objects.values()
    assert job["metadata"]["annotations"]["team"] == "ads"


def test_a_large_job_that_is_refused_leaves_nothing(cluster, capfd):
    cluster.absent.add("jobsets")
    assert send("--workers=800", "--ps=100") == 2
    assert "install JobSet" in capfd.readouterr().err
    assert cluster.objects == {}


def test_who_has_no_right_to_config_maps_can_cancel(cluster, monkeypatch):
    answer = cluster.answer

    def strict(method, path, body):
        if "/configmaps" in path:
            return 403, status(403, "forbidden")
        return answer(method, path, body)

    monkeypatch.setattr(cluster, "answer", strict)
    assert send() == 0
    assert run("cancel trial") == 0
    assert cluster.objects == {}


@pytest.mark.parametrize("fault", [429, 503])
def test_repeated_requests_make_one_job(cluster, fault):
    # The first request is refused; its repetition is carried out, but the answer is lost.
    cluster.faults = [(False, fault), (True, fault)]
    assert send() == 0
    assert cluster.requests.count(f"POST {POLICIES}") == 3  # kubectl itself repeats a 429
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


def test_a_job_whose_answer_is_lost_is_not_made_again(cluster, monkeypatch):
    answer = cluster.answer
    lost = []

    def losing(method, path, body):
        code, content = answer(method, path, body)
        if method == "POST" and "/jobsets?" in path and not lost:
            lost.append(code)
            return 503, status(503, "lost")
        return code, content

    monkeypatch.setattr(cluster, "answer", losing)
    assert send() == 0
    assert lost == [201]
    assert cluster.requests.count(f"POST {JOBSETS}") == 2
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


def test_a_second_job_of_one_name_is_refused_and_the_first_left_alone(cluster, capfd):
    assert send() == 0
    assert send() == 2
    error = capfd.readouterr().err
    assert error.startswith(
        "error: there is a NetworkPolicy trial in the context's namespace already; give another"
    )
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda c: c.absent.add("jobsets"), "install JobSet"),
        (
            lambda c: c.faults.append((False, 403)),
            "error: `kubectl create --filename=- --output=json`: Error from server (Forbidden)",
        ),
        (
            lambda c: setattr(c, "answer", lambda *request: (422, status(422, BAD_FIELD))),
            BAD_FIELD,
        ),
    ],
)
def test_a_refused_job_leaves_nothing(cluster, capfd, prepare, message):
    prepare(cluster)
    assert send() == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert cluster.objects == {}


def test_a_cluster_that_is_away_is_named(cluster, capfd, monkeypatch):
    cluster.faults = [(False, 503)] * 3
    assert run("list") == 3
    error = capfd.readouterr().err
    assert "Error from server (ServiceUnavailable): out of order; look at the cluster" in error
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    assert run("list") == 2  # at once: without a kubeconfig there is nothing to wait for
    assert "localhost:8080" in capfd.readouterr().err


@pytest.mark.quick("jobset")
@pytest.mark.parametrize("target", KINDS)
def test_a_job_is_followed_to_its_end(cluster, capfd, target):
    success = KINDS[target].success
    running = conditions("Running")
    if target == "jobset":
        running = {"replicatedJobsStatus": [{"name": "chief", "ready": 1}]}
    if target == "trainjob":
        running = {"jobsStatus": [{"name": "chief", "ready": 1}]}
    first, second, third = (f"{SECOND}{i}.5Z line {i}" for i in (1, 2, 3))
    written, last = [first, second, second], f"{SECOND}2.6Z last words"
    steps = [
        ({}, [], {}),
        (running, [pod(target)], {("pod-1", False): [first]}),
        (running, [pod(target)], {("pod-1", False): written}),
        # The container is restarted: what it wrote last is still read, once.
        (
            running,
            [pod(target, restarts=1, state="waiting")],
            {("pod-1", True): [*written, last], ("pod-1", False): [*written, last]},
        ),
        (running, [pod(target, restarts=1)], {("pod-1", False): [third]}),
        (conditions("Running", success), [pod(target, 1, "terminated")], {}),
    ]  # fmt: skip

    def step(job):
        if steps:
            job["status"], cluster.pods, logs = steps.pop(0)
            cluster.logs |= logs

    cluster.on_read = step
    assert send("--wait", target=target) == 0
    out = capfd.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("[worker 1]")]
    assert lines == [
        f"[worker 1] {text}" for text in ("line 1", "line 2", "line 2", "last words", "line 3")
    ]
    states = [line for line in out.splitlines() if line.startswith("[submit]")]
    assert states == [
        f"[submit] {target} trial: {state}" for state in ("Pending", "Running", success)
    ]


def test_a_job_that_fails_ends_with_3_and_the_reason(cluster, capfd):
    cluster.on_read = lambda job: job.update(status=conditions("Failed"))
    assert send("--wait") == 3
    assert "error: trial: Failed: why" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("verb", "flags", "message"),
    [
        ("cancel nothing", [], NOTHING),
        ("follow nothing", [], NOTHING),
        ("describe nothing", [], NOTHING),
        ("list", ["--kube_context=no"], "context was not found for specified context: no"),
        ("list", ["--namespace=other"], "Error from server (Forbidden): /apis/jobset"),
    ],
)
def test_what_is_not_there(cluster, capfd, verb, flags, message):
    assert run(verb, *flags) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--image="], "needs --image"),
        (["--package=."], "takes no --package"),
        (["--machine=ps:accelerator=nvidia-l4:1"], "the ps of a cluster computes nothing on a GPU"),
        (["--machine=worker:accelerator=nvidia-l4"], "write the GPU and how many"),
        (["--volume=data"], "write CLAIM:/PATH"),
        (["--name=Upper"], "--name=Upper: write 1 to 40 lowercase letters"),
        (["--label=a/b/c=ads"], "--label=a/b/c=ads"),
        (["--env=TF_CONFIG={}"], "the platform sets TF_CONFIG"),
        (["--ps=0"], "the job has workers but no ps"),
        (["--machine=memory=much"], "--machine=memory=much"),
        (["--partition=gpu"], "--partition is of --target=slurm, not jobset"),
        (["--project=my-project"], "--project is of --target=vertex, not jobset"),
        (["--restarts=-1"], "--restarts=-1"),
    ],
)
def test_wrong_jobs_send_nothing(cluster, capfd, flags, message):
    assert send(*flags) == 2
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("error: ")
    assert message in error
    assert cluster.requests == []


def test_a_dry_run_sends_nothing(cluster, capfd):
    assert run("submit", *JOB, "--dry_run", *TASKS) == 0
    assert capfd.readouterr().out.startswith("apiVersion: networking.k8s.io/v1\n")
    assert cluster.requests == []


def test_a_machine_without_kubectl_is_named_before_anything_is_sent(cluster, capfd, monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/directory")
    assert send() == 2
    assert "error: kubectl is not on this machine: install it" in capfd.readouterr().err
    assert run("submit", *JOB, "--dry_run", *TASKS) == 0


def test_pods_that_may_not_be_read_are_said_so(cluster, capfd, monkeypatch):
    answer = cluster.answer
    monkeypatch.setattr(
        cluster,
        "answer",
        lambda method, path, body: (
            (403, status(403, 'pods "pod-1" is forbidden'))
            if "/log?" in path
            else answer(method, path, body)
        ),
    )
    cluster.pods = [pod("jobset")]
    cluster.on_read = lambda job: job.update(status=conditions("Completed"))
    assert send("--wait") == 0
    assert 'output cannot be read, only the job\'s state: pods "pod-1" is forb' in (
        capfd.readouterr().out
    )


def test_a_pod_that_cannot_be_read_for_a_while_loses_no_line(cluster, monkeypatch):
    now = iter((0.0, 100.0, 200.0))
    monkeypatch.setattr("cloud.kubernetes.sender.time.monotonic", lambda: next(now))
    sender = KubernetesSender(JOBSET, Kubectl())
    one, other = pod("jobset"), pod("jobset", uid="pod-2")
    cluster.pods = [one, other]
    cluster.logs = {("pod-1", False): [f"{SECOND}1Z one"], ("pod-2", False): []}
    queries = []
    log = cluster._log
    monkeypatch.setattr(
        cluster, "_log", lambda name, asked: queries.append(asked) or log(name, asked)
    )
    assert list(sender.new_lines("trial")) == [("worker 1", "one")]
    cluster.logs["pod-2", False] = [f"{SECOND}2Z two"]
    away = dict(cluster.logs)
    monkeypatch.setattr(
        cluster, "_log", lambda name, asked: (500, status(400, "the node does not answer"))
    )
    assert list(sender.new_lines("trial")) == []
    monkeypatch.setattr(
        cluster, "_log", lambda name, asked: queries.append(asked) or log(name, asked)
    )
    cluster.logs = away
    assert list(sender.new_lines("trial")) == [("worker 1", "two")]
    assert [each.get("sinceSeconds") for each in queries] == [None, None, "230", "230"]
