import json

import pytest

from tfps.cluster.spec import Cluster
from tfps.cluster.tf_config import decode
from trainer.flags.task_flags import Platform

CLUSTER = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]}
WORKER = {"type": "worker", "index": 1}
POOLS = {"workerpool0": ["c:1"], "workerpool1": ["w:1", "w:2"], "workerpool2": ["p:1"]}


def tf_config(**more):
    return json.dumps({"cluster": CLUSTER, "task": WORKER, **more})


VERTEX = {
    "TF_CONFIG": tf_config(environment="cloud", job={}),
    "CLUSTER_SPEC": json.dumps(
        {"cluster": POOLS, "task": {"type": "workerpool1", "index": 1}, "environment": "cloud"}
    ),
    "CLOUD_ML_PROJECT_ID": "123",
    "AIP_MODEL_DIR": "gs://b/run/model/",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
CASES = {
    "Vertex AI": (VERTEX | POD, Platform.VERTEX),
    "one replica on Vertex AI, which gets no TF_CONFIG": (
        {"CLOUD_ML_PROJECT_ID": "123"},
        Platform.VERTEX,
    ),
    "JobSet": (POD | {"JOBSET_NAME": "x", "TF_CONFIG": tf_config()}, Platform.JOBSET),
    "TFJob": (POD | {"TF_CONFIG": tf_config(environment="cloud")}, Platform.TFJOB),
    "a pod of one's own": (POD | {"TF_CONFIG": tf_config()}, Platform.KUBERNETES),
    "a pod without cluster": (POD, Platform.KUBERNETES),
    "a task of Slurm": (
        {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "TF_CONFIG": tf_config()},
        Platform.SLURM,
    ),
    "the launcher": ({"TF_CONFIG": tf_config()}, Platform.LOCAL),
    "nothing": ({"AIP_MODEL_DIR": "gs://b/run/model/"}, Platform.LOCAL),
}


@pytest.mark.parametrize("name", CASES)
def test_the_platform_is_read_from_what_it_sets(name):
    environ, platform = CASES[name]
    assert Platform.of(environ) is platform


def test_the_role_is_told_with_the_platform():
    assert Platform.VERTEX.role(decode(VERTEX)) == "worker 1 of 2 on Vertex AI"
    assert Platform.LOCAL.role(Cluster()) == "the only task on this machine"
