"""A TrainJob of Kubeflow Trainer 2 and its runtime."""

import json

from tests.cloud.kubernetes.jobs import SPECS, container, job, large, render
from tests.cloud.kubernetes.schemas import pods
from tfps.cluster.tf_config import decode

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def jobs_of(runtime):
    return {job["name"]: job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]}


def test_the_workers_are_the_nodes_of_its_trainer_and_all_others_have_a_job_each():
    _, runtime, trainjob = render("trainjob", SPECS["spot"])
    assert (runtime["kind"], trainjob["kind"]) == ("TrainingRuntime", "TrainJob")
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "trial"}
    assert trainjob["spec"] == {"runtimeRef": reference}
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 3}
    jobs = jobs_of(runtime)
    replicas = {name: job["replicas"] for name, job in jobs.items()}
    assert replicas == {"chief": 1, "worker": 1, "ps": 2, "evaluator": 1}
    steps = {n: job["template"].get("metadata", {}).get("labels") for n, job in jobs.items()}
    assert steps == {**dict.fromkeys(jobs), "worker": {STEP: "trainer"}}
    workers, ps = (jobs[name]["template"]["spec"] for name in ("worker", "ps"))
    assert (workers["parallelism"], workers["completions"]) == (3, 3)
    assert (workers["backoffLimitPerIndex"], workers["maxFailedIndexes"]) == (3, 0)
    assert (ps["parallelism"], ps["completions"], ps["backoffLimit"]) == (1, 1, 3)
    assert {container(pod)["name"] for pod in pods(runtime).values()} == {"node"}
    rules = workers["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["containerName"] == "node"


def test_a_worker_is_at_the_place_of_its_completion():
    runtime = render("trainjob", SPECS["cpu"])[1]
    for role, label, index, at in (
        ("worker", "batch.kubernetes.io/job-completion-index", 2, "trial-worker-0-2.trial:2222"),
        ("ps", "jobset.sigs.k8s.io/job-index", 1, "trial-ps-1-0.trial:2222"),
    ):
        environment = {each["name"]: each for each in container(pods(runtime)[role])["env"]}
        path = environment["JOB_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == f"metadata.labels['{label}']"
        text = environment["TF_CONFIG"]["value"].replace("$(JOB_INDEX)", str(index))
        assert json.loads(text)["cluster"][role][index] == at
        assert decode({"TF_CONFIG": text}).address == at


def test_a_job_of_one_process_is_its_trainer():
    runtime = render("trainjob", SPECS["one process"])[1]
    [chief] = jobs_of(runtime).values()
    assert chief["template"]["metadata"]["labels"] == {STEP: "trainer"}
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 1}


def test_a_large_cluster_is_in_a_file_and_its_queue_is_named_once():
    kinds = [each["kind"] for each in render("trainjob", large(800, 100))]
    assert kinds == ["NetworkPolicy", "ConfigMap", "TrainingRuntime", "TrainJob"]
    queue = {"kueue.x-k8s.io/queue-name": "research"}
    *parts, trainjob = render("trainjob", job(labels=queue))
    assert trainjob["metadata"]["labels"].items() >= queue.items()
    assert "kueue" not in json.dumps(parts)
