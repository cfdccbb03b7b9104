"""What the manifests say of ends and restarts, held to how tfps recovers."""

import subprocess
import sys

import pytest

from tests.cloud.kubernetes.jobs import (
    ARGUMENTS,
    SPECS,
    TARGETS,
    container,
    job,
    pods,
    render,
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("more", "seconds"),
    [((), 40), (("--grace_seconds=90.5",), 106), (("--grace_seconds", "0"), 15)],
)
def test_the_grace_of_a_pod_is_longer_than_the_tasks_own(target, more, seconds):
    for pod in pods(target, job(arguments=(*ARGUMENTS, *more))).values():
        assert pod["spec"]["terminationGracePeriodSeconds"] == seconds
        assert pod["spec"]["shareProcessNamespace"] is True  # process 1 would not get SIGTERM


def test_the_grace_without_a_flag_is_the_trainers_own():
    # In a process of its own: other programs' flags have the same names.
    code = "import trainer.task as task; print(task.flags.FLAGS['grace_seconds'].default)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(said.stdout) + 15 == 40


@pytest.mark.parametrize("target", TARGETS)
def test_servers_are_probed(target):
    for name, pod in pods(target, SPECS["spot"]).items():
        probes = {key for key in container(pod) if key.endswith("Probe")}
        is_server = name in ("worker", "ps")
        assert probes == ({"startupProbe", "livenessProbe"} if is_server else set())


def test_a_jobset_ends_with_its_chief_and_restarts_what_tfps_can_take_back():
    manifest = render("jobset", SPECS["spot"])[1]["spec"]
    assert manifest["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    jobs = {each["name"]: each["template"]["spec"] for each in manifest["replicatedJobs"]}
    # A chief that ended by itself ends the job; another is restarted with all tasks.
    assert jobs["chief"]["backoffLimit"] == 0
    exits, disrupted = jobs["chief"]["podFailurePolicy"]["rules"]
    assert (exits["action"], exits["onExitCodes"]["values"]) == ("FailJob", [1, 2, 3])
    assert disrupted["action"] == "FailJob"
    first, second = manifest["failurePolicy"]["rules"]
    assert first["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert first["onJobFailureMessagePatterns"] == ["condition DisruptionTarget"]
    assert (second["action"], second["onJobFailureReasons"]) == (
        "FailJobSet",
        ["PodFailurePolicy", "DeadlineExceeded"],
    )
    # A server comes back alone, unless its input is bad.
    for name in ("worker", "ps"):
        assert jobs[name]["backoffLimit"] == 3
        exits, disrupted = jobs[name]["podFailurePolicy"]["rules"]
        assert (exits["action"], exits["onExitCodes"]["values"]) == ("FailJob", [2])
        assert disrupted["action"] == "Ignore"
    # An evaluator never ends the job.
    assert jobs["evaluator"]["backoffLimit"] == 2**31 - 1
    assert jobs["evaluator"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_a_tfjob_ends_with_its_chief_and_cleans_up():
    manifest = render("tfjob", SPECS["spot"])[1]["spec"]
    assert manifest["runPolicy"]["cleanPodPolicy"] == "Running"
    assert manifest["runPolicy"]["backoffLimit"] == 3 * 7
    restarts = {name: each["restartPolicy"] for name, each in manifest["tfReplicaSpecs"].items()}
    assert restarts == {
        "Chief": "ExitCode",
        "Worker": "Always",
        "PS": "Always",
        "Evaluator": "Always",
    }
