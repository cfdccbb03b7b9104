"""Jobs that Kubernetes cannot run."""

import pytest

from cloud.job_spec import Role
from cloud.kubernetes.pod import Volume
from tests.cloud.kubernetes.jobs import (
    ARGUMENTS,
    TARGETS,
    cluster_roles,
    job,
    large,
    render,
    target,
)
from tfps.errors import UserError


@pytest.mark.parametrize(
    ("target", "spec", "message"),
    [
        ("jobset", large(9990, 500), "10491 tasks: their addresses are .* a ConfigMap"),
        ("tfjob", large(1900, 100), "2001 tasks: the training operator gives each a TF_CONFIG"),
        (
            "jobset",
            job(arguments=(*ARGUMENTS, *("--task.x=" + "x" * 100_000 for _ in range(4)))),
            "the JobSet has .* put them into the config",
        ),
    ],
)
def test_what_is_too_large_is_refused(target, spec, message):
    with pytest.raises(UserError, match=message):
        render(target, spec)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": ""}, "needs --image"),
        ({"package": "."}, "takes no --package"),
        ({"network": "n"}, "takes no --network"),
        ({"queue_seconds": 1}, "takes no --queue_seconds"),
        (
            {"arguments": (*ARGUMENTS, "--metrics_port=9090")},
            "--metrics_port=9090 alone answers nobody .* add --metrics_address=0.0.0.0",
        ),
        ({"arguments": (*ARGUMENTS, "--metrics_port=2222")}, "not TensorFlow's, 2222"),
        ({"arguments": (*ARGUMENTS, "--metrics_port=0")}, "name a port from 1 to 65535"),
        ({"roles": cluster_roles(disk_type="pd-ssd")}, r"takes no disk_type \(worker: pd-ssd\)"),
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


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (("--config=/home/me/mine.py",), "--config=/home/me/mine.py"),
        (("--config=configs/mine.py", "--data.train=data/train"), "--data.train=data/train"),
        (("--config=/x/c.py", "--data.eval=gs://b/e,/tmp/e"), "--config=/x/c.py and --data.eval="),
        (("--config=/data/c.py", "--data.train=/data/a,gs://b/c"), ""),
    ],
)
def test_paths_that_no_pod_sees_are_warned_of(arguments, warned, capsys):
    spec = job(arguments=(*arguments, "--job_dir=gs://b/run"))
    target("jobset", "claim:/data").stage(spec)
    said = capsys.readouterr().out
    assert (f"so {warned}" in said) if warned else ("see no file" not in said)


def test_a_tfjob_must_restart_something():
    with pytest.raises(UserError, match="--restarts=0"):
        render("tfjob", job(restarts=0))


@pytest.mark.parametrize(
    "text", ["data", "data:relative", "data:/", "data:/tmp", ":/x", "A:/x", ""]
)
def test_bad_volumes(text):
    with pytest.raises(UserError, match="write CLAIM:/PATH"):
        Volume.parse(text)
