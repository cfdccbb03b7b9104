"""Jobs of many kinds, and the manifests made of them."""

from cloud.job_spec import JobSpec, Role
from cloud.kubernetes.kubectl import Kubectl
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.target import KINDS, KubernetesTarget
from cloud.remote_target import PollOptions
from tests.cloud.kubernetes import schemas

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


def target(name, *volumes):
    volumes = [Volume.parse(text) for text in volumes]
    return KubernetesTarget(PollOptions(1.0), KINDS[name], Kubectl("lab"), volumes)


def render(name, spec, *volumes):
    return target(name, *volumes).render(spec)


def pods(target, spec):
    return schemas.pods(render(target, spec)[1])


def container(pod):
    (found,) = pod["spec"]["containers"]
    return found


LONG_NAME = "recommendations-ranking-weekly-retrain-1"


def large(workers, ps, name=LONG_NAME):
    return job(name=name, roles=(Role("chief"), Role("worker", workers), Role("ps", ps)))
