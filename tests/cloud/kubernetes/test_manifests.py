"""What the manifests say, held to the published schemas and to how tfps recovers."""

import copy
import json
import subprocess
import sys

import pytest

from cloud.follower import Patience
from cloud.job_spec import JobSpec
from cloud.kubernetes.target import KubernetesTarget
from cloud.kubernetes.volume import Volume
from cloud.role import Role
from tests.cloud.kubernetes import schemas
from tfps.errors import UserError

GIB = 1 << 30
ARGUMENTS = ("--config=configs/smoke.py", "--job_dir=gs://b/run", "--note=$(HOME) $5")
TARGETS = ("jobset", "tfjob")


def cluster_roles(**worker):
    return (Role("chief"), Role("worker", 3, **worker), Role("ps", 2))


def job(**fields):
    own = {"name": "trial", "arguments": ARGUMENTS, "roles": cluster_roles(), "image": "r/i:1"}
    return JobSpec(**own | fields)


SPECS = {
    "cpu": job(),
    "machines": job(
        roles=tuple(
            Role(each.job, each.replicas, "n2-standard-8", 6, 24 * GIB + 5, disk_gb=50)
            for each in cluster_roles()
        ),
        labels={"team": "ads"},
        environment={"A": "$(B)"},
        service_account="trainer",
        timeout_seconds=3600,
    ),
    "gpu": job(roles=cluster_roles(accelerator="nvidia-l4", accelerators=1, memory_bytes=GIB)),
    "spot": job(roles=(*cluster_roles(), Role("evaluator")), spot=True),
    "one process": job(roles=(Role("chief", accelerator="nvidia.com/gpu", accelerators=2),)),
}


def render(target, spec, *volumes):
    volumes = [Volume.parse(text) for text in volumes]
    return KubernetesTarget(target, "lab", "", volumes, False, Patience(1.0)).render(spec)


def pods(target, spec):
    return schemas.pods(render(target, spec)[1])


def container(pod):
    (found,) = pod["spec"]["containers"]
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SPECS)
def test_manifests_are_valid_by_the_published_schemas(target, name):
    for manifest in render(target, SPECS[name], "data:/data", "jobs:/jobs"):
        schemas.check(manifest)
        assert manifest["metadata"]["namespace"] == "lab"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("jobset", ("spec",)),
        ("jobset", ("metadata",)),
        ("jobset", ("spec", "failurePolicy", "rules", 0)),
        ("jobset", ("spec", "replicatedJobs", 0, "template", "spec")),
        ("tfjob", ("spec", "runPolicy")),
        ("tfjob", ("metadata",)),
        ("tfjob", ("spec", "tfReplicaSpecs", "Chief", "template", "spec", "securityContext")),
    ],
)
def test_the_schemas_refuse_unknown_fields(target, path):
    manifest = copy.deepcopy(render(target, SPECS["cpu"])[1])
    place = manifest
    for key in path:
        place = place[key]
    place["unknown"] = 1
    with pytest.raises(Exception, match="'unknown' was unexpected"):
        schemas.check(manifest)


@pytest.mark.parametrize("target", TARGETS)
def test_every_task_runs_the_same_as_a_user_without_rights(target):
    found = pods(target, SPECS["spot"])
    assert set(found) == {"chief", "worker", "ps", "evaluator"}
    for pod in found.values():
        spec, own = pod["spec"], container(pod)
        assert (own["image"], own["command"]) == ("r/i:1", ["python", "-m", "trainer.task"])
        assert own["args"] == [*ARGUMENTS[:2], "--note=$$(HOME) $$5"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert own["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "privileged" not in json.dumps(pod)


@pytest.mark.parametrize("target", TARGETS)
def test_only_the_jobs_own_pods_reach_its_ports(target):
    policy, manifest = render(target, SPECS["cpu"])
    own = policy["spec"]["podSelector"]
    assert policy["spec"]["ingress"] == [
        {"from": [{"podSelector": own}], "ports": [{"protocol": "TCP", "port": 2222}]}
    ]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    # A label that the controller sets on each pod, of a value that one job alone can have.
    (label,) = own["matchLabels"]
    assert own["matchLabels"][label] == manifest["metadata"]["name"]
    assert label.endswith(("/jobset-name", "/job-name"))
    ports = {name: container(pod).get("ports") for name, pod in pods(target, job()).items()}
    assert {port["containerPort"] for each in ports.values() for port in each} == {2222}


@pytest.mark.parametrize("target", TARGETS)
def test_gpus_go_to_the_workers_alone(target):
    found = pods(target, SPECS["gpu"])
    limits = {name: container(pod)["resources"].get("limits") for name, pod in found.items()}
    assert limits == {
        "chief": None,
        "worker": {"memory": "1Gi", "nvidia.com/gpu": "1"},
        "ps": None,
    }
    selector = found["worker"]["spec"]["nodeSelector"]
    assert selector == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    alone = container(pods(target, SPECS["one process"])["chief"])
    assert alone["resources"]["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize("target", TARGETS)
def test_machines_are_asked_for(target):
    worker = pods(target, SPECS["machines"])["worker"]
    assert worker["metadata"]["labels"]["team"] == "ads"
    assert worker["spec"]["serviceAccountName"] == "trainer"
    assert worker["spec"]["nodeSelector"] == {"node.kubernetes.io/instance-type": "n2-standard-8"}
    assert container(worker)["resources"] == {
        "requests": {"cpu": "6", "memory": str(24 * GIB + 5), "ephemeral-storage": "50G"},
        "limits": {"memory": str(24 * GIB + 5)},
    }
    assert {"name": "A", "value": "$$(B)"} in container(worker)["env"]


@pytest.mark.parametrize("target", TARGETS)
def test_spot_machines_are_for_tasks_whose_loss_costs_nothing(target):
    on_spot = {
        name
        for name, pod in pods(target, SPECS["spot"]).items()
        if pod["spec"].get("nodeSelector") == {"cloud.google.com/gke-spot": "true"}
    }
    assert on_spot == {"worker", "evaluator"}


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
    # A chief that ended by itself ends the job; another is begun again with all tasks.
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


def test_a_jobset_numbers_its_tasks():
    manifest = render("jobset", SPECS["spot"])[1]
    environment = {each["name"]: each for each in container(pods("jobset", job())["ps"])["env"]}
    path = environment["JOB_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['jobset.sigs.k8s.io/job-index']"
    assert [each["replicas"] for each in manifest["spec"]["replicatedJobs"]] == [1, 3, 2, 1]
    value = environment["TF_CONFIG"]["value"].replace("$(JOB_INDEX)", "1")
    decoded = json.loads(value)
    assert decoded["task"] == {"type": "ps", "index": 1}
    assert decoded["cluster"]["ps"] == ["trial-ps-0-0.trial:2222", "trial-ps-1-0.trial:2222"]
    names = [
        each["name"] for each in container(pods("jobset", SPECS["one process"])["chief"])["env"]
    ]
    assert "TF_CONFIG" not in names


LONG_NAME = "recommendations-ranking-weekly-retrain-1"


def large(workers, ps, name=LONG_NAME):
    return job(name=name, roles=(Role("chief"), Role("worker", workers), Role("ps", ps)))


def test_a_large_clusters_addresses_are_in_one_file_and_nowhere_else():
    """2,000 tasks whose names have the greatest length there is."""
    spec = large(1900, 99)
    policy, config_map, manifest = render("jobset", spec)
    for each in (policy, config_map, manifest):
        schemas.check(each)
        assert each["metadata"]["namespace"] == "lab"
    assert len(json.dumps(manifest)) < 20_000
    ((name, text),) = config_map["data"].items()
    assert 200_000 < len(text) < 1 << 18  # which kubectl apply can keep in an annotation
    worker = schemas.pods(manifest)["worker"]
    (volume,) = (each for each in worker["spec"]["volumes"] if "configMap" in each)
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    (mount,) = (
        each for each in container(worker)["volumeMounts"] if each["name"] == volume["name"]
    )
    environment = {each["name"]: each.get("value", "") for each in container(worker)["env"]}
    assert environment["TF_CONFIG_FILE"] == f"{mount['mountPath']}/{name}"
    task = json.loads(environment["TF_CONFIG"].replace("$(JOB_INDEX)", "7"))
    assert task == {"task": {"type": "worker", "index": 7}}
    cluster = json.loads(text)["cluster"]
    assert [len(cluster[each]) for each in ("chief", "worker", "ps")] == [1, 1900, 99]
    assert cluster["worker"][1899] == f"{LONG_NAME}-worker-1899-0.{LONG_NAME}:2222"
    hosts = [address.split(":")[0] for each in cluster.values() for address in each]
    assert max(len(label) for host in hosts for label in host.split(".")) <= 63
    pod_name = f"{LONG_NAME}-worker-1899-0-xxxxx"  # Kubernetes adds five letters
    assert len(pod_name) <= 63


def test_a_small_cluster_is_in_the_environment_alone():
    for name, tasks in (("trial", 300), (LONG_NAME, 100)):
        manifests = render("jobset", large(tasks, 10, name))
        assert [each["kind"] for each in manifests] == ["NetworkPolicy", "JobSet"]
        assert "configMap" not in json.dumps(manifests[1])


@pytest.mark.parametrize(
    ("target", "spec", "message"),
    [
        ("jobset", large(9990, 500), "10491 tasks: their addresses are .* a ConfigMap"),
        ("tfjob", large(1900, 100), "2001 tasks: the training operator gives each a TF_CONFIG"),
        (
            "jobset",
            job(arguments=(*ARGUMENTS, *("--set=" + "x" * 100_000 for _ in range(4)))),
            "the JobSet has .* put them into the config",
        ),
    ],
)
def test_what_is_too_large_is_refused(target, spec, message):
    with pytest.raises(UserError, match=message):
        render(target, spec)


def test_a_tfjob_takes_what_its_operator_can_tell():
    render("tfjob", large(1000, 100, "ads"))


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": ""}, "needs --image"),
        ({"package": "."}, "takes no --package"),
        ({"network": "n"}, "takes no --network"),
        ({"queue_seconds": 1}, "takes no --queue_seconds"),
        ({"roles": cluster_roles(disk_type="pd-ssd")}, r"takes no --disk_type \(worker: pd-ssd\)"),
        (
            {"roles": (Role("chief"), Role("worker"), Role("ps", 1, "", 0, 0, "nvidia-l4", 1))},
            "the ps of a cluster computes nothing on a GPU",
        ),
        ({"arguments": (*ARGUMENTS, "--grace_seconds=soon")}, "--grace_seconds=soon is no number"),
    ],
)
def test_what_kubernetes_cannot_run_is_refused(target, fields, message):
    with pytest.raises(UserError, match=message):
        render(target, job(**fields))


def test_a_tfjob_must_restart_something():
    with pytest.raises(UserError, match="--restarts=0"):
        render("tfjob", job(restarts=0))


@pytest.mark.parametrize(
    "text", ["data", "data:relative", "data:/", "data:/tmp", ":/x", "A:/x", ""]
)
def test_bad_volumes(text):
    with pytest.raises(UserError, match="write CLAIM:/PATH"):
        Volume.parse(text)
