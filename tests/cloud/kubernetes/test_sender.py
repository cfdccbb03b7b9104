"""Submits through the real Kubernetes client to a server that checks what it gets."""

import subprocess
import sys

import pytest

from cloud import submit
from tests.cloud.kubernetes.fake_cluster import FakeCluster

TASKS = ["--", "--config=configs/smoke.py", "--job_dir=gs://bucket/run"]
JOB = ["--name=trial", "--image=registry/tfps:1", "--workers=2", "--ps=1"]
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/research/networkpolicies"
SECOND = "2026-11-21T10:00:0"
LABELS = {
    "jobset": {
        "jobset.sigs.k8s.io/jobset-name": "trial",
        "jobset.sigs.k8s.io/replicatedjob-name": "worker",
        "jobset.sigs.k8s.io/job-index": "1",
    },
    "tfjob": {
        "training.kubeflow.org/job-name": "trial",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    },
}


@pytest.fixture(name="cluster")
def cluster_fixture(tmp_path, monkeypatch):
    with FakeCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield cluster


def run(verb, *flags, target="jobset"):
    own = ["submit", *verb.split(), f"--target={target}", "--poll_seconds=0.05", *flags]
    return submit.main(own)


def send(*flags, target="jobset"):
    return run("submit", "--apply", *JOB, *flags, *TASKS, target=target)


def pod(target, restarts=0, state="running", uid="pod-1"):
    return {
        "metadata": {"name": uid, "uid": uid, "labels": LABELS[target]},
        "status": {
            "containerStatuses": [
                {
                    "name": "tensorflow",
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
    ("target", "kind", "plural"), [("jobset", "JobSet", "jobsets"), ("tfjob", "TFJob", "tfjobs")]
)
def test_a_job_is_made_behind_its_policy_and_tied_to_it(cluster, capfd, target, kind, plural):
    assert send(target=target) == 0
    assert cluster.kinds() == ["NetworkPolicy", kind]
    policy, job = cluster.objects.values()
    (owner,) = policy["metadata"]["ownerReferences"]
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
    *belongings, job = cluster.objects.values()
    for each in belongings:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("JobSet", job["metadata"]["uid"])
    assert send(*large) == 2  # the first is left alone
    assert len(cluster.objects) == 3
    assert run("cancel trial") == 0
    assert cluster.objects == {}


def test_a_large_job_that_is_refused_leaves_nothing(cluster, capfd):
    cluster.absent.add("jobsets")
    assert send("--workers=800", "--ps=100") == 2
    assert "install JobSet" in capfd.readouterr().err
    assert cluster.objects == {}
    cluster.absent.add("configmaps")
    assert send("--workers=800", "--ps=100") == 2
    assert "cannot create the ConfigMap trial-cluster: 404" in capfd.readouterr().err
    assert cluster.objects == {}


def test_who_has_no_right_to_config_maps_can_cancel(cluster, monkeypatch):
    answer = cluster.answer

    def strict(method, path, body):
        if "/configmaps/" in path:
            return 403, {"message": "forbidden"}
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
    assert cluster.requests.count(f"POST {POLICIES}") == 3
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


def test_a_job_whose_answer_is_lost_is_not_made_again(cluster, monkeypatch):
    answer = cluster.answer
    lost = []

    def losing(method, path, body):
        status, content = answer(method, path, body)
        if method == "POST" and path == JOBSETS and not lost:
            lost.append(status)
            return 503, {"message": "lost"}
        return status, content

    monkeypatch.setattr(cluster, "answer", losing)
    assert send() == 0
    assert lost == [201]
    assert cluster.requests.count(f"POST {JOBSETS}") == 2
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


def test_a_second_job_of_one_name_is_refused_and_the_first_left_alone(cluster, capfd):
    assert send() == 0
    assert send() == 2
    error = capfd.readouterr().err
    assert error.startswith("error: there is a NetworkPolicy trial in namespace research already")
    assert cluster.kinds() == ["NetworkPolicy", "JobSet"]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda c: c.absent.add("jobsets"), "install JobSet"),
        (lambda c: c.faults.append((False, 403)), "cannot create the NetworkPolicy trial: 403"),
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
    monkeypatch.setattr("cloud.kubernetes.cluster._WAITS", (0.0,))
    cluster.faults = [(False, 503)] * 2
    assert run("list") == 3
    assert "does not serve: it answered 503: out of order" in capfd.readouterr().err


@pytest.mark.parametrize("target", ["jobset", "tfjob"])
def test_a_job_is_followed_to_its_end(cluster, capfd, target):
    success = {"jobset": "Completed", "tfjob": "Succeeded"}[target]
    running = conditions("Running")
    if target == "jobset":
        running = {"replicatedJobsStatus": [{"name": "chief", "ready": 1}]}
    first, second, third = (f"{SECOND}{i}.5Z line {i}" for i in (1, 2, 3))
    steps = [
        ({}, [], {}),
        (running, [pod(target)], {("pod-1", False): [first]}),
        (running, [pod(target)], {("pod-1", False): [first, second, second]}),
        # The container was restarted: what it wrote last is still read, once.
        (
            running,
            [pod(target, restarts=1)],
            {("pod-1", True): [first, second, second, f"{SECOND}2.6Z last words"],
             ("pod-1", False): [third]},
        ),
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
        ("cancel nothing", [], "there is no jobset nothing in namespace research"),
        ("follow nothing", [], "there is no jobset nothing in namespace research"),
        ("describe nothing", [], "there is no jobset nothing in namespace research"),
        ("list", ["--kube_context=no"], "the kubeconfig cannot be used (--kube_context=no)"),
        ("list", ["--namespace=other"], "cannot list jobsets: 403"),
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
        (["--ps_accelerator=nvidia-l4:1"], "the ps of a cluster computes nothing on a GPU"),
        (["--worker_accelerator=nvidia-l4"], "write the GPU and how many"),
        (["--volume=data"], "write CLAIM:/PATH"),
        (["--name=Upper"], "--name=Upper: write 1 to 40 lowercase letters"),
        (["--label=Team=ads"], "--label=Team=ads"),
        (["--env=TF_CONFIG={}"], "the platform sets TF_CONFIG"),
        (["--ps=0"], "the job has workers but no ps"),
        (["--memory=much"], "--memory=much"),
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


def test_without_apply_nothing_is_sent(cluster, capfd):
    assert run("submit", *JOB, *TASKS) == 0
    assert capfd.readouterr().out.startswith("apiVersion: networking.k8s.io/v1\n")
    assert run("submit", *JOB, "--wait", *TASKS) == 2
    assert "--wait needs --apply" in capfd.readouterr().err
    assert cluster.requests == []


def test_the_extra_is_named_when_the_client_is_absent(cluster):
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        "from cloud import submit; sys.exit(submit.main(['submit', 'list', '--target=jobset']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'tfps[kubernetes]'" in done.stderr
