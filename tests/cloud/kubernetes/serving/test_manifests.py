"""What the manifests say, held to the published schemas and to TensorFlow Serving's messages."""

import copy
import dataclasses

import pytest

from cloud.deployment.deployment import Deployment
from cloud.kubernetes.kubectl import Kubectl
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.serving.manifests import callers as callers_of
from cloud.kubernetes.serving.target import ServingOnKubernetes
from cloud.remote_target import PollOptions
from tests.cloud.deployment.exports import RAGGED
from tests.cloud.deployment.test_checks import GIB, MODEL
from tests.cloud.kubernetes import schemas
from tests.cloud.tfserving import protos
from tfps.errors import UserError

GPU = {"accelerator": "nvidia-l4", "accelerators": 1, "image": "tensorflow/serving:2.20.0-gpu"}
CASES = {
    "plain": {},
    "scaled": {"min_replicas": 2, "max_replicas": 10, "cpus": 4, "memory_bytes": 20 * GIB},
    "batched": {"max_batch_size": 64, "labels": {"team": "ads"}, "service_account": "serving"},
    "gpu": GPU,
    "resource": {**GPU, "accelerator": "nvidia.com/gpu", "machine": "g2-standard-8"},
}


def target(volumes=(), callers=callers_of([], []), namespace="lab"):  # noqa: B008 - not changed
    return ServingOnKubernetes(Kubectl(namespace), volumes, callers, PollOptions(1.0))


def render(changes=None, model=MODEL, **options):
    deployment = Deployment("census", model, **(changes or {}))
    return {each["kind"]: each for each in target(**options).render(deployment)}


def pod(manifests):
    return manifests["Deployment"]["spec"]["template"]["spec"]


def container(manifests):
    [found] = pod(manifests)["containers"]
    return found


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_valid_by_the_published_schemas(name):
    manifests = render(CASES[name])
    for manifest in manifests.values():
        schemas.check(manifest)
        assert manifest["metadata"]["namespace"] == "lab"
        assert manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "tfps"
    own = {"metadata": {"name": "x"}, "spec": pod(manifests), "apiVersion": "v1", "kind": "Pod"}
    schemas.check(own)
    assert ("HorizontalPodAutoscaler" in manifests) == (name == "scaled")


@pytest.mark.parametrize(
    "path",
    [
        ("Deployment", "spec"),
        ("Deployment", "spec", "strategy", "rollingUpdate"),
        ("Deployment", "spec", "template", "spec", "containers", 0, "startupProbe"),
        ("Service", "spec", "ports", 0),
        ("NetworkPolicy", "spec", "ingress", 0),
        ("HorizontalPodAutoscaler", "spec", "metrics", 0, "resource"),
        ("PodDisruptionBudget", "spec"),
        ("ConfigMap", "metadata"),
    ],
)
def test_the_schemas_refuse_unknown_fields(path):
    manifests = copy.deepcopy(render(CASES["scaled"]))
    place = manifests
    for key in path:
        place = place[key]
    place["unknown"] = 1
    with pytest.raises(Exception, match="'unknown' was unexpected"):
        schemas.check(manifests[path[0]])


def test_servers_have_this_version_and_no_other():
    files = render(CASES["batched"])["ConfigMap"]["data"]
    [model] = protos.models(files["models.config"]).model_config_list.config
    assert (model.name, model.base_path) == ("census", MODEL.base)
    assert list(model.model_version_policy.specific.versions) == [3]
    assert protos.monitoring(files["monitoring.config"]).prometheus_config.enable
    assert protos.batching(files["batching.config"]).max_batch_size.value == 64


def test_another_version_is_another_config_map_and_so_another_revision():
    first, second = render(), render(model=dataclasses.replace(MODEL, version=2))
    names = [each["ConfigMap"]["metadata"]["name"] for each in (first, second)]
    assert len(set(names)) == 2
    assert all(each["ConfigMap"]["immutable"] for each in (first, second))
    for each, name in zip((first, second), names, strict=True):
        assert {"name": "config", "configMap": {"name": name}} in pod(each)["volumes"]
    again = render(model=dataclasses.replace(MODEL, versions=(1, 2, 3)))
    assert again == first


def test_no_server_goes_before_another_one_answers():
    spec = render()["Deployment"]["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
    }
    own = container(render())
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert own[name]["httpGet"] == {"path": "/v1/models/census", "port": "rest"}
    started = own["startupProbe"]
    seconds = started["periodSeconds"] * started["failureThreshold"]
    assert 600 + 10 * GIB // (20 << 20) - 5 <= seconds < spec["progressDeadlineSeconds"]


def test_a_server_ends_after_the_requests_that_it_has():
    own, spec = container(render()), pod(render())
    [_, seconds] = own["lifecycle"]["preStop"]["exec"]["command"]
    assert int(seconds) < spec["terminationGracePeriodSeconds"]
    assert spec["shareProcessNamespace"] is True


def test_a_server_has_no_rights():
    spec, own = pod(render()), container(render())
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("callers", "peers"),
    [
        (((), ()), [{"podSelector": {}}]),
        (
            (("app=frontend", "ads/role=x"), ()),
            [
                {"podSelector": {"matchLabels": {"app": "frontend"}}},
                {"podSelector": {"matchLabels": {"ads/role": "x"}}},
            ],
        ),
        (
            ((), ("kubernetes.io/metadata.name=web",)),
            [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}],
        ),
    ],
)
def test_who_may_ask(callers, peers):
    policy = render(callers=callers_of(*callers))["NetworkPolicy"]
    schemas.check(policy)
    ports = [{"protocol": "TCP", "port": port} for port in (8500, 8501)]
    assert policy["spec"]["ingress"] == [{"from": peers, "ports": ports}]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    service = render()["Service"]["spec"]
    assert service["type"] == "ClusterIP"
    assert policy["spec"]["podSelector"]["matchLabels"] == service["selector"]


@pytest.mark.parametrize("flag", ["--allow_from", "--allow_namespace"])
@pytest.mark.parametrize("text", ["app", "=x", "a b=c", "app=x y", "app=-"])
def test_labels_that_kubernetes_would_refuse(flag, text):
    given = ((text,), ()) if flag == "--allow_from" else ((), (text,))
    with pytest.raises(UserError, match=flag):
        callers_of(*given)


def test_memory_is_what_the_model_needs_unless_it_is_given():
    assert container(render())["resources"] == {
        "requests": {"cpu": "1", "memory": "12800Mi"},  # 0.5 + 1.2 * 10 GiB
        "limits": {"memory": "12800Mi"},
    }
    given = container(render(CASES["scaled"]))["resources"]
    assert given == {"requests": {"cpu": "4", "memory": "20Gi"}, "limits": {"memory": "20Gi"}}


def test_gpus():
    spec = pod(render(CASES["gpu"]))
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert container(render(CASES["gpu"]))["resources"]["limits"]["nvidia.com/gpu"] == "1"
    spec = pod(render(CASES["resource"]))
    assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "g2-standard-8"}


def test_a_model_on_a_volume_is_mounted_where_it_is_and_only_read():
    model = dataclasses.replace(MODEL, base="/mnt/jobs/census/export")
    manifests = render(model=model, volumes=(Volume("jobs", "/mnt/jobs"),))
    schemas.check(manifests["Deployment"])
    claim = {"claimName": "jobs", "readOnly": True}
    assert {"name": "volume-0", "persistentVolumeClaim": claim} in pod(manifests)["volumes"]
    mount = {"name": "volume-0", "mountPath": "/mnt/jobs", "readOnly": True}
    assert mount in container(manifests)["volumeMounts"]


@pytest.mark.parametrize(
    ("changes", "model", "message"),
    [
        (
            {"memory_bytes": GIB},
            MODEL,
            "--machine=memory=1 GiB: gs://bucket/runs/my_job.v2/export/3 with",
        ),
        (
            {"accelerator": "nvidia-l4", "accelerators": 1},
            MODEL,
            "--machine=accelerator=nvidia-l4 needs an --image that uses GPUs",
        ),
        (
            {},
            dataclasses.replace(MODEL, base="/home/me/export"),
            "the model is in /home/me/export on this machine, where no pod sees it",
        ),
    ],
)
def test_what_is_refused(changes, model, message):
    with pytest.raises(UserError) as error:
        render(changes, model, volumes=(Volume("jobs", "/home/m"),))
    assert message in str(error.value)


def test_models_of_every_kind_can_be_served():
    for manifest in render(model=dataclasses.replace(MODEL, features=RAGGED)).values():
        schemas.check(manifest)
