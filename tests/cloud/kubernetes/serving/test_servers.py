"""Deploys through the real kubectl to a server that checks what it gets."""

import copy

import pytest
import yaml

from cloud import deploy
from cloud.kubernetes.serving.target import reasons
from tests.cloud.deployment import exports
from tests.cloud.kubernetes.fake_cluster import FakeCluster, status
from tests.cloud.kubernetes.serving.controller import Controller
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401

APPS = "/apis/apps/v1/namespaces/research/deployments"
KINDS = ["NetworkPolicy", "ConfigMap", "Deployment", "Service", "PodDisruptionBudget"]


@pytest.fixture(name="cluster")
def cluster_fixture(tmp_path, monkeypatch):
    monkeypatch.setattr("cloud.target._WAITS", (0.0,) * 8)
    with FakeCluster() as cluster:
        cluster.install(tmp_path, monkeypatch)
        yield cluster


@pytest.fixture(name="controller")
def controller_fixture(cluster):
    return Controller(cluster)


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path):
    return exports.write(tmp_path / "census", 1, 2, 3)


def run(verb, *flags):
    own = [*verb.split(), "--target=kubernetes", "--poll_seconds=0.01", "--wait_seconds=20", *flags]
    return deploy.main(["deploy", *own])


def send(job_dir, *flags):
    return run("deploy", f"--model={job_dir}", f"--volume=jobs:{job_dir}", *flags)


def only(cluster, kind):
    [found] = [each for each in cluster.objects.values() if each["kind"] == kind]
    return found


def kinds(cluster):
    """Those of this program's own objects."""
    return [kind for kind in cluster.kinds() if kind != "ReplicaSet"]


def served(cluster):
    """The version that the Deployment's ConfigMap names."""
    template = only(cluster, "Deployment")["spec"]["template"]
    [name] = [x["configMap"]["name"] for x in template["spec"]["volumes"] if "configMap" in x]
    files = cluster.objects[f"/api/v1/namespaces/research/configmaps/{name}"]["data"]
    return int(files["models.config"].partition("versions: ")[2].split()[0])


def test_a_model_is_put_behind_an_address_and_taken_away(cluster, controller, job_dir, capfd):
    assert send(job_dir, "--min_replicas=2") == 0
    assert kinds(cluster) == KINDS
    assert served(cluster) == 3
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == (
        "census: 2 replicas with 1 CPU, 768 MiB of memory each; they are billed as their nodes "
        "are, until `python -m cloud.deploy undeploy census --target=kubernetes`"
    )
    waiting = 'census: Waiting for deployment "census-serving" rollout to finish: '
    assert lines[1:4] == [
        "census: Waiting for deployment spec update to be observed...",
        f"{waiting}1 out of 2 new replicas have been updated...",
        'census: deployment "census-serving" successfully rolled out',
    ]
    address = "http://census-serving.research.svc:8501/v1/models/census"
    assert lines[4] == f"census: serves {job_dir}/export/3 at {address}"
    assert lines[5].startswith(f"ask it from a pod with curl --fail-with-body {address}:predict")

    assert run("list") == 0
    assert f"census                2 of 2 servers answer  {job_dir}/export/3" in (
        capfd.readouterr().out
    )
    assert run("describe census") == 0
    shown = [each["kind"] for each in yaml.safe_load_all(capfd.readouterr().out)]
    assert sorted(shown) == sorted(KINDS)

    assert run("undeploy census") == 0
    assert cluster.objects == {}
    assert capfd.readouterr().out.splitlines() == [
        "census: 1 server to end",
        "census: all of it is deleted; the model's files are left alone",
    ]
    assert run("undeploy census") == 2
    assert "there is no deployment census in the context's namespace" in capfd.readouterr().err


@pytest.mark.slow
def test_the_policy_goes_last_and_comes_first(cluster, controller, job_dir, capfd):
    assert send(job_dir) == 0
    assert run("undeploy census") == 0
    writes = [each for each in cluster.requests if each.startswith(("PATCH", "DELETE"))]
    kinds_of = [each.split("/")[-2] for each in writes]
    assert kinds_of[0] == "networkpolicies"
    assert kinds_of[-2:] == ["networkpolicies", "configmaps"]
    assert send(job_dir) == 0
    cluster.on_pods = lambda: None  # they do not end
    assert run("undeploy census", "--wait_seconds=0.1") == 3
    assert "census: 1 servers are left after 0.1 s (--wait_seconds)" in capfd.readouterr().err
    assert cluster.kinds() == ["NetworkPolicy", "ConfigMap"]


def test_another_version_comes_before_the_old_one_goes(cluster, controller, job_dir, capfd):
    assert send(job_dir, "--version=2", "--min_replicas=2") == 0
    capfd.readouterr()
    assert send(job_dir, "--min_replicas=2") == 0
    assert served(cluster) == 3
    waiting = 'census: Waiting for deployment "census-serving" rollout to finish: '
    assert capfd.readouterr().out.splitlines()[1:4] == [
        "census: Waiting for deployment spec update to be observed...",
        f"{waiting}1 out of 2 new replicas have been updated...",
        'census: deployment "census-serving" successfully rolled out',
    ]
    # The version before can come back, so what names it stays.
    assert len([kind for kind in cluster.kinds() if kind == "ConfigMap"]) == 2


def test_a_repeated_deploy_changes_nothing(cluster, controller, job_dir):
    assert send(job_dir) == 0
    before = copy.deepcopy(cluster.objects)
    assert send(job_dir) == 0
    for path, each in before.items():
        assert cluster.objects[path].get("spec") == each.get("spec")
        assert cluster.objects[path]["metadata"].items() >= each["metadata"].items()
    assert only(cluster, "Deployment")["metadata"]["generation"] == 1


@pytest.mark.slow
def test_a_rollback_brings_the_version_before_back(cluster, controller, job_dir, capfd):
    assert send(job_dir, "--version=2") == 0
    assert send(job_dir, "--version=3", "--machine=memory=2GiB") == 0
    assert run("rollback census") == 0
    assert served(cluster) == 2
    found = only(cluster, "Deployment")
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "768Mi"}
    assert found["metadata"]["annotations"]["tfps/model"] == f"{job_dir}/export/2"
    said = capfd.readouterr().out
    assert f"census: from {job_dir}/export/3 back to {job_dir}/export/2" in said
    assert run("list") == 0
    assert f"{job_dir}/export/2" in capfd.readouterr().out
    assert run("rollback census") == 0  # as `kubectl rollout undo` does
    assert served(cluster) == 3


def test_there_is_nothing_to_go_back_to(cluster, controller, job_dir, capfd):
    assert send(job_dir) == 0
    assert run("rollback census") == 2
    assert "census has no revision to go back to" in capfd.readouterr().err
    assert run("rollback other") == 2
    assert "there is no deployment other" in capfd.readouterr().err


@pytest.mark.slow
def test_no_rollback_to_a_version_that_is_gone(cluster, controller, cloud, capfd):
    job_dir = exports.upload("gs://bucket/runs/gone", 1, 2)
    for version in (1, 2):
        assert run("deploy", f"--model={job_dir}", f"--version={version}") == 0
    from tfps.storage import objects

    objects.client().bucket("bucket").blob("runs/gone/export/1/saved_model.pb").delete()
    assert run("rollback gone") == 2
    assert "gs://bucket/runs/gone" in capfd.readouterr().err
    assert served(cluster) == 2


@pytest.mark.slow
def test_no_rollback_without_what_names_the_version(cluster, controller, job_dir, capfd):
    for version in (1, 2):
        assert send(job_dir, f"--version={version}") == 0
    path = next(path for path, each in cluster.objects.items() if each["kind"] == "ConfigMap")
    del cluster.objects[path]
    assert run("rollback census") == 2
    assert f"census cannot go back to {job_dir}/export/1: its ConfigMap" in capfd.readouterr().err
    assert served(cluster) == 2


@pytest.mark.quick("False")
@pytest.mark.parametrize("gives_up", [True, False])
def test_servers_that_cannot_load_a_model_take_nothing_away(
    cluster, controller, job_dir, capfd, gives_up
):
    assert send(job_dir, "--version=2") == 0
    controller.bad.add("export/3")
    controller.gives_up = gives_up
    assert send(job_dir, f"--wait_seconds={30 if gives_up else 0.3}") == 3
    out, error = capfd.readouterr()
    if gives_up:
        assert "rollout to finish: 1 old replicas are pending termination..." in out
        assert out.count("census: the server ended with exit code 255: Error") == 1
        assert out.count("census: CrashLoopBackOff: back-off 10s restarting") == 1
    why = "exceeded its progress deadline" if gives_up else "after 0.3 s (--wait_seconds)"
    assert why in error
    assert "the old servers still answer; look at the new ones with `kubectl logs" in error
    assert only(cluster, "Deployment")["status"]["availableReplicas"] == 1
    assert run("rollback census") == 0
    assert served(cluster) == 2


@pytest.mark.slow
def test_a_number_that_changes_by_itself_is_left_alone(cluster, controller, job_dir):
    assert send(job_dir, "--min_replicas=2", "--max_replicas=5") == 0
    assert kinds(cluster) == [*KINDS, "HorizontalPodAutoscaler"]
    found = only(cluster, "Deployment")
    assert found["spec"]["replicas"] == 2
    found["spec"]["replicas"] = 4  # as the autoscaler does
    assert send(job_dir, "--min_replicas=2", "--max_replicas=5", "--version=2") == 0
    assert found["spec"]["replicas"] == 4
    assert send(job_dir, "--min_replicas=2", "--max_replicas=3", "--version=2") == 0
    assert found["spec"]["replicas"] == 3
    assert send(job_dir, "--min_replicas=1", "--version=2") == 0
    assert found["spec"]["replicas"] == 1
    assert "HorizontalPodAutoscaler" not in kinds(cluster)


@pytest.mark.slow
def test_another_programs_autoscaler_is_left_alone(cluster, controller, job_dir):
    assert send(job_dir, "--max_replicas=2") == 0
    found = only(cluster, "HorizontalPodAutoscaler")
    found["metadata"]["labels"] = {}
    assert send(job_dir) == 0
    assert only(cluster, "HorizontalPodAutoscaler") is found


def test_an_interrupted_wait_leaves_the_rollout_going(
    cluster, controller, job_dir, capfd, monkeypatch
):
    def interrupt(pods):
        raise KeyboardInterrupt

    monkeypatch.setattr("cloud.kubernetes.serving.target.reasons", interrupt)
    assert send(job_dir) == 130
    said = capfd.readouterr().out
    assert "census: the rollout continues; deploy again, or go back with" in said
    assert kinds(cluster) == KINDS


@pytest.mark.slow
def test_what_no_revision_needs_is_deleted(cluster, controller, job_dir):
    for version in (1, 2, 3):
        assert send(job_dir, f"--version={version}") == 0
    sets = [path for path, each in cluster.objects.items() if each["kind"] == "ReplicaSet"]
    del cluster.objects[sets[0]]  # as Kubernetes does with the oldest of many
    assert send(job_dir, "--version=3", "--min_replicas=2") == 0
    configs = [each for each in cluster.objects.values() if each["kind"] == "ConfigMap"]
    kept = sorted(each["metadata"]["annotations"]["tfps/model"] for each in configs)
    assert kept == [f"{job_dir}/export/{version}" for version in (2, 3)]


def test_what_somebody_else_made_is_left_alone(cluster, controller, job_dir, capfd):
    assert send(job_dir) == 0
    for kind in KINDS:
        found = only(cluster, kind)
        own = found["metadata"]["labels"]
        found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "tfps"}  # such as a job's
        before = copy.deepcopy(found)
        assert send(job_dir, "--min_replicas=2") == 2
        name = found["metadata"]["name"]
        error = capfd.readouterr().err
        assert f"there is a {kind} {name} in namespace research already" in error
        assert found == before
        if kind == "Deployment":
            assert run("rollback census") == 2
        found["metadata"]["labels"] = own


@pytest.mark.slow
@pytest.mark.parametrize(("code", "is_carried_out"), [(409, False), (503, True)])
def test_commands_that_fail_are_repeated(cluster, controller, job_dir, code, is_carried_out):
    answer, failed = cluster.answer, set()

    def failing(method, path, body):
        """Every request that changes something fails once."""
        if method not in ("PATCH", "DELETE") or path in failed:
            return answer(method, path, body)
        if code == 409 and method == "DELETE":
            return answer(method, path, body)
        failed.add(path)
        if is_carried_out:
            answer(method, path, body)
        return code, status(code, "the object has been modified")

    cluster.answer = failing
    assert send(job_dir, "--max_replicas=2") == 0
    assert kinds(cluster) == [*KINDS, "HorizontalPodAutoscaler"]
    assert send(job_dir, "--version=1") == 0
    failed.clear()
    assert run("rollback census") == 0
    assert served(cluster) == 3
    assert run("undeploy census") == 0
    assert cluster.objects == {}


def test_a_cluster_that_stays_away_is_named(cluster, controller, job_dir, capfd, monkeypatch):
    cluster.answer = lambda *request: (503, status(503, "out of order"))
    assert send(job_dir) == 3
    assert "(ServiceUnavailable): out of order; look at the cluster" in capfd.readouterr().err
    assert cluster.objects == {}


def test_a_missing_right_is_named(cluster, controller, job_dir, capfd):
    answer = cluster.answer
    cluster.answer = lambda method, path, body: (
        (403, status(403, "you cannot patch deployments"))
        if method == "PATCH" and "/deployments/" in path
        else answer(method, path, body)
    )
    assert send(job_dir) == 2
    error = capfd.readouterr().err
    assert "Error from server (Forbidden): you cannot patch deployments\n" in error


def test_an_object_that_others_keep_changing_ends_the_tries(cluster, controller, job_dir, capfd):
    answer = cluster.answer
    cluster.answer = lambda method, path, body: (
        (409, status(409, "the object has been modified"))
        if method == "PATCH" and "/services/" in path
        else answer(method, path, body)
    )
    assert send(job_dir) == 3
    assert "the object has been modified" in capfd.readouterr().err
    assert sum("PATCH" in each and "/services/" in each for each in cluster.requests) == 0


def test_a_dry_run_sends_nothing(cluster, job_dir, capfd):
    assert run("deploy", "--dry_run", f"--model={job_dir}", f"--volume=jobs:{job_dir}") == 0
    assert capfd.readouterr().out.startswith("apiVersion: networking.k8s.io/v1\n")
    assert cluster.requests == []


def test_reasons_of_pods_are_said_once_and_shortly():
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available:\n 3 Insufficient memory.",
    }
    image = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off " + "x" * 400}}
    begins = {"waiting": {"reason": "ContainerCreating"}}
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    pods = [
        {"status": {"conditions": [unplaced]}},
        {"status": {"conditions": [unplaced]}},
        {"status": {"containerStatuses": [{"state": image}]}},
        {"status": {"containerStatuses": [{"state": begins, "lastState": killed}]}},
        {},
    ]
    first, second, third = reasons(pods)
    assert first == "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."
    assert second.startswith("ImagePullBackOff: Back-off xxx")
    assert len(second) == 301
    assert third == "the server ended with exit code 137: OOMKilled"
