import dataclasses

import pytest

from cloud.job_spec import JobSpec, Role, flag_value
from tfps.errors import UserError

ROLES = (Role("chief"), Role("worker", 2), Role("ps"), Role("evaluator"))
SPEC = JobSpec("a-job", ("--config=configs/smoke.py", "--job_dir=gs://b/run"), ROLES)


def test_what_a_job_says_of_itself():
    assert (SPEC.tasks, SPEC.job_dir) == (5, "gs://b/run")
    assert SPEC.role("worker") == Role("worker", 2)
    assert SPEC.replicas("ps") == 1
    assert dataclasses.replace(SPEC, arguments=("--flagfile=flags.txt",)).job_dir == ""
    alone = dataclasses.replace(SPEC, roles=(Role("chief"),))
    assert (alone.role("ps"), alone.replicas("ps"), alone.tasks) == (None, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--job_dir=a"], "a"),
        (["-job_dir", "a"], "a"),
        (["--job_dir=a", "--job_dir", "b"], "b"),
        (["--job_dir"], ""),
        (["--job_dirs=a"], ""),
        (["--job_dir=a=b\nc"], "a=b\nc"),
    ],
)
def test_the_value_of_a_flag(arguments, value):
    assert flag_value("job_dir", arguments) == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "A"}, "--name=A: write 1 to 40 lowercase letters"),
        ({"name": "a" * 41}, "1 to 40"),
        ({"name": "a-"}, "not ending with -"),
        ({"arguments": ()}, "the tasks have no arguments: put them after --"),
        ({"arguments": ("--config=x",)}, "the tasks' arguments have no --job_dir"),
        ({"arguments": ("--job_dir=x",)}, "the tasks' arguments have no --config"),
        ({"module": "a b"}, "--module=a b: there is no such module"),
        ({"roles": ()}, "the job has no chief"),
        ({"roles": ROLES[1:]}, "the job has no chief"),
        ({"roles": (ROLES[1], ROLES[0], ROLES[2])}, "in the order chief, worker, ps, evaluator"),
        ({"roles": (*ROLES[:2], *ROLES[1:])}, "write each once"),
        ({"roles": ROLES[:2]}, "workers but no ps: give --workers=1 and --ps=1"),
        ({"roles": (ROLES[0], ROLES[2])}, "ps but no worker"),
        ({"roles": (ROLES[0], ROLES[3])}, "leave --evaluator out"),
        ({"environment": {"A-B": "1"}}, "'A-B' is no name of an environment variable"),
        ({"environment": {"TF_CONFIG": "{}"}}, "the platform sets TF_CONFIG for each task"),
        ({"environment": {"TF_CONFIG_FILE": "/x"}}, "the platform sets TF_CONFIG_FILE for each"),
        ({"environment": {"A": "x" * (1 << 17)}}, "--env=A=… has 131074 bytes, but a process"),
        (
            {"arguments": (*SPEC.arguments, "x" * (1 << 17))},
            "xxx… has 131072 bytes, but a process",
        ),
        ({"labels": {"a/b/c": "ads"}}, "--label=a/b/c=ads: keys and values are"),
        ({"labels": {"team": "ads team"}}, "--label=team=ads team"),
        ({"labels": {"team": "a" * 64}}, "at most 63"),
        ({"timeout_seconds": -1}, "--timeout_seconds=-1 must be 0 or more"),
        ({"restarts": -1}, "--restarts=-1 must be 0 or more"),
    ],
)
def test_a_job_that_cannot_be(changes, message):
    with pytest.raises(UserError) as caught:
        dataclasses.replace(SPEC, **changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job": "master"}, "role 'master' is unknown; use one of chief, worker, ps, evaluator"),
        ({"replicas": 0}, "worker: 0 tasks; give 1 or more"),
        ({"job": "chief", "replicas": 2}, "chief: 2 tasks; a job has one chief at most"),
        ({"job": "evaluator", "replicas": 2}, "a job has one evaluator at most"),
        ({"cpus": -1}, "worker: cpus=-1 must be 0 or more"),
        ({"accelerator": "NVIDIA_L4"}, "give both, as in --machine=worker:accelerator=NVIDIA_L4:1"),
        ({"accelerators": 1}, "give both"),
    ],
)
def test_a_role_that_cannot_be(changes, message):
    with pytest.raises(UserError) as caught:
        Role(**{"job": "worker", **changes})
    assert message in str(caught.value)
