"""NCCL is for replicas that have GPUs, and nobody else is left to wonder."""

import json
import os

import pytest

from tests.loaded import client

ALONE = {}
REPLICA = {"cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}}
WITH_PS = {"cluster": REPLICA["cluster"] | {"ps": ["127.0.0.1:3"]}}


@pytest.mark.quick("cluster0*", "cluster1*")
@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (ALONE, "--collectives=nccl is for replicas without ps"),
        (WITH_PS, "--collectives=nccl is for replicas without ps"),
        (REPLICA, "--collectives=nccl: TensorFlow sees no GPU here"),
    ],
)
def test_who_cannot_use_nccl_is_told(tmp_path, cluster, message):
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    if cluster:
        task = {"type": "worker", "index": 0}
        environ["TF_CONFIG"] = json.dumps(cluster | {"task": task})
    flags = [f"--job_dir={tmp_path}", "--config=configs/smoke.py", "--collectives=nccl"]
    done = client.run("trainer.task", *flags, environ=environ)
    assert done.returncode == 2, done.stderr
    assert f"error: {message}" in done.stdout + done.stderr
