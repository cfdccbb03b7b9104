"""`--patch`: what a cluster's owner demands of every pod, merged into the manifests."""

from pathlib import Path

import pytest

from cloud.kubernetes.kubectl import Kubectl
from cloud.kubernetes.target import KINDS, KubernetesTarget
from cloud.remote_target import PollOptions
from tests.cloud.kubernetes import schemas
from tests.cloud.kubernetes.jobs import TARGETS, job
from tfps.errors import UserError

OWNERS = """
kind: PodTemplate
template:
  metadata: {annotations: {team: ads}}
  spec:
    nodeSelector: {pool: training}
    priorityClassName: batch
    imagePullSecrets: [{name: registry}]
    tolerations: [{key: dedicated, operator: Exists}]
    containers:
    - name: tensorflow
      env:
      - name: WANDB_API_KEY
        valueFrom: {secretKeyRef: {name: wandb, key: token}}
      volumeMounts: [{name: keys, mountPath: /keys, readOnly: true}]
    - {name: proxy, image: r/proxy:1}
    volumes:
    - {name: keys, secret: {secretName: keys}}
---
kind: PodTemplate
metadata: {name: ps}
template:
  spec:
    nodeSelector: {pool: memory}
"""


def rendered(target: str, path: str, **fields):
    spec = job(labels={"kueue.x-k8s.io/queue-name": "Research.1"}, **fields)
    return KubernetesTarget(PollOptions(1.0), KINDS[target], Kubectl("lab"), (), path).render(spec)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "owners.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("target", TARGETS)
def test_every_pod_has_what_the_owner_demands(target: str, tmp_path: Path) -> None:
    before, after = (rendered(target, path) for path in ("", write(tmp_path, OWNERS)))
    for manifest in after:
        schemas.check(manifest)
    plain, pods = schemas.pods(before[-1]), schemas.pods(after[-1])
    assert set(pods) == {"chief", "worker", "ps"}
    for role, pod in pods.items():
        spec, was = pod["spec"], plain[role]["spec"]
        assert spec["nodeSelector"]["pool"] == ("memory" if role == "ps" else "training")
        assert spec["tolerations"][-1] == {"key": "dedicated", "operator": "Exists"}
        own, proxy = spec["containers"]
        [container] = was["containers"]
        assert own["env"] == [*container.get("env", []), own["env"][-1]]
        assert own["env"][-1]["valueFrom"]["secretKeyRef"]["key"] == "token"
        assert own["volumeMounts"] == [*container["volumeMounts"], own["volumeMounts"][-1]]
        assert (own["args"], own["image"]) == (container["args"], container["image"])
        assert proxy == {"name": "proxy", "image": "r/proxy:1"}
        assert spec["volumes"] == [*was["volumes"], spec["volumes"][-1]]
        assert pod["metadata"]["annotations"]["team"] == "ads"


@pytest.mark.parametrize("target", TARGETS)
def test_a_queues_label_is_on_the_job_alone(target: str) -> None:
    *others, manifest = rendered(target, "")
    label = "kueue.x-k8s.io/queue-name"
    assert manifest["metadata"]["labels"][label] == "Research.1"
    assert not any(label in each["metadata"]["labels"] for each in others)
    for pod in schemas.pods(manifest).values():
        assert label not in pod.get("metadata", {}).get("labels", {})


def test_an_object_is_patched_by_its_kind_and_null_removes(tmp_path: Path) -> None:
    text = """
    kind: JobSet
    spec: {ttlSecondsAfterFinished: null, suspend: true}
    ---
    kind: NetworkPolicy
    metadata: {annotations: {owner: ads}}
    """
    policy, manifest = rendered("jobset", write(tmp_path, text.replace("\n    ", "\n")))
    assert "ttlSecondsAfterFinished" not in manifest["spec"]
    assert manifest["spec"]["suspend"] is True
    assert policy["metadata"]["annotations"] == {"owner": "ads"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write YAML documents that each have a kind"),
        ("- 1", "write YAML documents that each have a kind"),
        ("kind: [", "cannot be read: "),
        ("kind: Pod", "document 1: kind 'Pod' is none of NetworkPolicy, JobSet, PodTemplate"),
        ("kind: PodTemplate\nspec: {}", "a PodTemplate has template, and no spec"),
        (
            "kind: PodTemplate\nmetadata: {name: ps, labels: {team: ads}}",
            "document 1: a PodTemplate has no metadata but name, a role's: write that of its pods",
        ),
        (
            "kind: PodTemplate\nmetadata: {name: cook}",
            "no role 'cook'; there are chief, worker, ps",
        ),
        (
            "kind: JobSet\nmetadata: {name: other}",
            "metadata.name is other, but the JobSet is tr",
        ),
        ("kind: JobSet\nspec: 3", "document 1, spec: 3 stands where a mapping is needed"),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        rendered("jobset", write(tmp_path, text))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"--patch={tmp_path}")


def test_a_directory_that_one_pod_alone_has_is_refused(tmp_path: Path) -> None:
    arguments = ("--config=configs/smoke.py", "--job_dir=runs/x")
    with pytest.raises(UserError, match=r"--job_dir=runs/x would be a directory of each pod alone"):
        rendered("jobset", "", arguments=arguments)
    rendered("jobset", write(tmp_path, "kind: JobSet"), arguments=arguments)
