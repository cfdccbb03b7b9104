"""How manifests name the tasks of small and large clusters."""

import json

from tests.cloud.kubernetes import schemas
from tests.cloud.kubernetes.jobs import LONG_NAME, SPECS, container, job, large, pods, render


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


def test_a_tfjob_takes_what_its_operator_can_describe():
    render("tfjob", large(1000, 100, "ads"))
