"""What the batch script says."""

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from cloud.job_spec import JobSpec, Role
from cloud.slurm.script import Allocation, script
from tfps.errors import UserError

PATIENCE = 60
ARGUMENTS = ("--config=configs/smoke.py", "--job_dir=/jobs/a b", "--note=$(HOME) 'x'")
GIB = 1 << 30


def roles(**worker):
    return (Role("chief"), Role("worker", 4, **worker), Role("ps", 2), Role("evaluator"))


def job(**fields):
    return JobSpec(**{"name": "trial", "arguments": ARGUMENTS, "roles": roles()} | fields)


def options(spec, **allocation):
    rendered = script(spec, Allocation(**allocation))
    return dict(
        (*line.split("=", 1), "")[:2] for line in re.findall(r"^#SBATCH --(.*)$", rendered, re.M)
    )


JOBS = {
    "cpu": (job(), Allocation()),
    "gpu": (
        job(roles=roles(accelerator="a100", accelerators=2), labels={"team": "ads"}),
        Allocation(2, "gpu part", "acc't", "high", 4000, "/opt/my python/bin/python"),
    ),
    "alone": (job(roles=(Role("chief", accelerator="gpu", accelerators=1),)), Allocation()),
    "own lines": (job(), Allocation(options=["nice=7"], setup=["export A=1", "A=$((A + 1))"])),
    "environment": (job(environment={"A": "it's $HOME"}, timeout_seconds=900), Allocation()),
}


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_finds_nothing(name, tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(script(*JOBS[name]))
    program = pathlib.Path(sys.executable).parent / "shellcheck"
    # SC2016: a $ in what the user gives stays as it is.
    done = subprocess.run([program, "--exclude=SC2016", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_chief_that_works_has_a_node_as_a_worker_has():
    spec = job(arguments=(*ARGUMENTS, "--chief_works"))
    assert (options(job())["nodes"], options(spec)["nodes"]) == ("4", "5")
    with_gpu = tuple(
        dataclasses.replace(each, accelerator="a100", accelerators=2)
        if each.job in ("chief", "worker")
        else each
        for each in roles()
    )
    assert options(dataclasses.replace(spec, roles=with_gpu))["gpus-per-node"] == "a100:2"
    with pytest.raises(UserError, match="9 tasks need as many ports"):
        script(spec, Allocation(first_port=65528))
    assert "% 1172 * 9))" in script(spec, Allocation())


def test_nodes_are_asked_for():
    spec = job(
        roles=tuple(
            Role(each.job, each.replicas, "epyc", 6, 8 * GIB, disk_gb=10, **gpu)
            for each in roles()
            for gpu in [{"accelerator": "a100", "accelerators": 1} if each.job == "worker" else {}]
        ),
        timeout_seconds=3601,
    )
    found = options(spec, nodes=3, partition="gpu", account="a", qos="q")
    # Node 0 has the chief, workers 0 and 3, and ps 0.
    assert found == {
        "job-name": "trial",
        "output": "trial-%j.log",
        "nodes": "3",
        "exclusive": "",
        "mem": "32768M",
        "mincpus": "24",
        "tmp": "40G",
        "gpus-per-node": "a100:2",
        "constraint": "epyc",
        "partition": "gpu",
        "account": "a",
        "qos": "q",
        "comment": "managed-by=tfps",
        "time": "61",
        "requeue": "",
        "no-kill": "",
        "open-mode": "append",
        "signal": "B:USR1@85",
    }
    assert options(job())["nodes"] == "4"  # one per worker
    assert options(job())["mem"] == "0M"  # all there is
    longer = job(arguments=(*ARGUMENTS, "--grace_seconds=100"))
    assert options(longer)["signal"] == "B:USR1@160"


def test_jobs_that_share_nodes_have_ports_of_their_own():
    rendered = script(job(), Allocation())
    [line] = re.findall("^export TFPS_FIRST_PORT=.*$", rendered, re.M)

    def first(number):
        command = f"SLURM_JOB_ID={number}; {line}; echo $TFPS_FIRST_PORT"
        return int(subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout)

    assert [first(number) for number in (0, 1, 2)] == [22220, 22228, 22236]  # 8 tasks each
    assert max(map(first, range(1315, 1321))) + 8 <= 32768


HOSTILE = "a100;touch pwned;#$(touch pwned)`touch pwned`'\"\\ x"


def test_nothing_that_is_given_is_run_by_the_script(tmp_path):
    spec = job(
        arguments=(*ARGUMENTS, HOSTILE),
        roles=tuple(
            Role(each.job, each.replicas, HOSTILE, **gpu)
            for each in roles()
            for gpu in [{"accelerator": HOSTILE, "accelerators": 1} if each.job == "worker" else {}]
        ),
        environment={"A": HOSTILE},
    )
    rendered = script(spec, Allocation(1, HOSTILE, HOSTILE, HOSTILE, python=HOSTILE))
    # Commands that say what they were given stand in for Slurm's and for the interpreter. The chief
    # ends when all four jobs have: the script ends with it, and the others by that.
    say = '#!/bin/bash\necho "$0 $*" >> "$LOG"\n'
    wait = 'until [ "$(grep -c "/srun " "$LOG")" = 4 ]; do sleep 0.01; done'
    for name, more in (
        ("scontrol", ""),
        ("srun", f'case "$*" in *" run chief "*) {wait};; esac\n'),
        (HOSTILE.replace("/", ""), ""),
    ):
        (tmp_path / name).write_text(say + more)
        (tmp_path / name).chmod(0o755)
    path, log = f"{tmp_path}:{os.environ['PATH']}", tmp_path / "log"
    environ = {"PATH": path, "LOG": str(log), "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "1"}
    command = ["bash", "-c", rendered]
    subprocess.run(command, cwd=tmp_path, env=environ, timeout=PATIENCE, check=True)
    assert not (tmp_path / "pwned").exists()
    said = log.read_text()
    assert f" --gpus-per-task={HOSTILE}:1 " in said
    assert f"run chief trainer.task {' '.join(spec.arguments)}" in said
    directives = [line for line in rendered.splitlines() if line.startswith("#SBATCH")]
    given = [shlex.split(line, comments=False)[1] for line in directives]
    for option in (f"gpus-per-node={HOSTILE}:4", f"constraint={HOSTILE}", f"qos={HOSTILE}"):
        assert f"--{option}" in given


@pytest.mark.parametrize(
    ("fields", "allocation", "option"),
    [
        ({"roles": roles(accelerator="a\ntouch x", accelerators=1)}, {}, "gpus-per-node"),
        ({"roles": (Role("chief", machine="a\ntouch x"),)}, {}, "constraint"),
        ({}, {"partition": "a\ntouch x"}, "partition"),
        ({}, {"account": "a\rb"}, "account"),
        ({}, {"qos": "a\0b"}, "qos"),
    ],
)
def test_an_option_that_would_be_several_lines_is_refused(fields, allocation, option):
    with pytest.raises(UserError, match=f"--{option}=.*one line of a script"):
        script(job(**fields), Allocation(**allocation))


def test_further_options_of_sbatch_are_passed_on():
    given = ["reservation=tfps lab", "--exclude=n[1-3]", "contiguous"]
    found = options(job(), options=given)
    assert (found["reservation"], found["exclude"]) == ("'tfps lab'", "'n[1-3]'")
    assert found["contiguous"] == ""


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("nodes=3", "--sbatch=nodes=3: a job sets it itself"),
        ("--signal=B:USR2@9", "a job sets it itself"),
        ("partition=gpu", "--partition says it"),
        ("time=5", "--timeout_seconds says it"),
        ("array=1-5", "each job has a --job_dir of its own"),
        ("-C gpu", "write a long option of sbatch"),
        ("exclude n1", "write a long option of sbatch"),
        ("comment=a\nb", "a job sets it itself"),
        ("reservation=a\nb", "is one line of a script"),
    ],
)
def test_an_option_of_sbatch_that_a_job_has_or_cannot_have_is_refused(option, message):
    with pytest.raises(UserError, match=re.escape(message)):
        script(job(), Allocation(options=[option]))


@pytest.mark.parametrize(("last", "code"), [("export SEEN=$((BEFORE + 1))", 0), ("false", 1)])
def test_lines_of_setup_are_run_first_and_end_the_job_where_one_fails(last, code):
    rendered = script(job(), Allocation(setup=["BEFORE=22", last]))
    own, rest = rendered.split("set -u", 1)
    assert "SLURM" not in own
    assert "mapfile" in rest
    check = f"{own}\nset -u\nexec bash -c '[ $SEEN = 23 ]'"
    environ = {"PATH": os.environ["PATH"]}
    assert subprocess.run(["bash", "-c", check], env=environ, timeout=PATIENCE).returncode == code


def test_a_setup_of_several_lines_in_one_is_refused():
    with pytest.raises(UserError, match="write one line of bash each time"):
        script(job(), Allocation(setup=["a\nb"]))


@pytest.mark.parametrize(
    ("fields", "allocation", "message"),
    [
        ({"image": "i"}, {}, "takes no --image"),
        ({"package": "."}, {}, "takes no --package"),
        ({"network": "n"}, {}, "takes no --network"),
        ({"service_account": "s"}, {}, "takes no --service_account"),
        ({"queue_seconds": 1}, {}, "takes no --queue_seconds"),
        ({"spot": True}, {}, "takes no --spot"),
        ({"roles": roles(disk_type="ssd")}, {}, r"takes no disk_type \(worker\)"),
        ({"roles": roles(machine="epyc")}, {}, "give one for all roles"),
        (
            {"roles": (*roles()[:3], Role("evaluator", accelerator="a100", accelerators=1))},
            {},
            "on Slurm GPUs are for workers",
        ),
        (
            {
                "arguments": (*ARGUMENTS, "--mode.name=allreduce"),
                "roles": (
                    Role("chief", accelerator="l4", accelerators=1),
                    Role("worker", 2, accelerator="a100", accelerators=1),
                ),
            },
            {},
            "GPUs of two kinds, a100 and l4: all nodes",
        ),
        ({"arguments": (*ARGUMENTS, "--grace_seconds=x")}, {}, "--grace_seconds=x is no number"),
        ({}, {"first_port": 65530}, "8 tasks need as many ports"),
        ({}, {"first_port": 80}, "from 1024 to 65535"),
        ({"timeout_seconds": 145}, {}, "--timeout_seconds=145: Slurm may say 145 s before"),
    ],
)
def test_what_slurm_cannot_run_is_refused(fields, allocation, message):
    with pytest.raises(UserError, match=message):
        script(job(**fields), Allocation(**allocation))
