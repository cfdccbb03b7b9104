"""What the manifests say of tasks and machines, held to the published schemas."""

import copy
import dataclasses
import json

import pytest

from tests.cloud.kubernetes import schemas
from tests.cloud.kubernetes.jobs import (
    ARGUMENTS,
    GIB,
    SPECS,
    TARGETS,
    container,
    job,
    pods,
    render,
)


@pytest.mark.parametrize("target", [*TARGETS, "trainjob"])
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
        ("trainjob", ("spec", "template", "spec", "replicatedJobs", 1, "template")),
        ("trainjob", ("spec", "mlPolicy")),
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
def test_figures_for_prometheus_are_found_and_reached(target):
    flags = ("--metrics_port=9090", "--metrics_address=0.0.0.0")
    spec = job(arguments=(*ARGUMENTS, *flags))
    found = {name: pod["metadata"].get("annotations") for name, pod in pods(target, spec).items()}
    assert found == {
        **dict.fromkeys(found),
        "chief": {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9090",
            "prometheus.io/path": "/metrics",
        },
    }
    policy, _ = render(target, spec)
    assert policy["spec"]["ingress"][1:] == [{"ports": [{"protocol": "TCP", "port": 9090}]}]


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
def test_all_pods_of_a_machine_type_that_has_gpus_are_let_onto_it(target):
    spec = SPECS["gpu"]
    for machine, tolerating in [("g2-standard-8", {"chief", "worker", "ps"}), ("", {"worker"})]:
        roles = tuple(dataclasses.replace(role, machine=machine) for role in spec.roles)
        found = pods(target, dataclasses.replace(spec, roles=roles))
        assert tolerating == {
            name
            for name, pod in found.items()
            if pod["spec"].get("tolerations")
            == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        }


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
