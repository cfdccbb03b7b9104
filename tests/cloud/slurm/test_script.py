"""What the batch script says, and what it does with acting tasks; see also test_training.py."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest

from cloud.job_spec import JobSpec
from cloud.role import Role
from cloud.slurm.placement import Placement
from cloud.slurm.script import Allocation, script
from cloud.slurm.task import tf_config
from tests.cloud.slurm import stand_in
from tests.project import ROOT
from tfps.errors import UserError

PATIENCE = 60
ARGUMENTS = ("--config=configs/smoke.py", "--job_dir=/jobs/a b", "--note=$(HOME) 'x'")
GIB = 1 << 30
ENVIRON = {
    "TFPS_HOSTS": "n1 n2 n3",
    "TFPS_TASKS": "chief=1 worker=4 ps=2 evaluator=1",
    "TFPS_FIRST_PORT": "5000",
}


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
    "environment": (job(environment={"A": "it's $HOME"}, timeout_seconds=90), Allocation()),
}


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_finds_nothing(name, tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(script(*JOBS[name]))
    program = pathlib.Path(sys.executable).parent / "shellcheck"
    # SC2016: a $ in what the user gives stays as it is.
    done = subprocess.run([program, "--exclude=SC2016", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


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


def test_tasks_are_placed_and_numbered():
    placement = Placement.of(ENVIRON)
    assert placement.nodes("worker") == ["n1", "n2", "n3", "n1"]
    assert placement.nodes("evaluator") == ["n3"]
    cluster = placement.cluster()
    assert cluster.chief == ("n1:5000",)
    assert cluster.workers == ("n1:5001", "n2:5002", "n3:5003", "n1:5004")
    assert cluster.ps == ("n1:5005", "n2:5006")
    assert cluster.evaluators == ("n3:5007",)
    started = ENVIRON | {"SLURM_PROCID": "1", "SLURMD_NODENAME": "n2"}
    config = json.loads(tf_config(started, "ps"))
    assert config["task"] == {"type": "ps", "index": 1}
    assert tf_config(started | {"TFPS_TASKS": "chief=1"}, "chief") is None


def test_a_large_cluster_reaches_a_task_in_a_file(tmp_path):
    """Since it is longer than a variable can be; the file goes with the task."""
    (tmp_path / "acting.py").write_text(
        "import os\nfrom tfps.cluster.tf_config import decode\nfound = decode(os.environ)\n"
        "print(found.name, found.address, os.environ['TF_CONFIG_FILE'], sep='\\n')"
    )
    nodes = [f"{'n' * 60}{node}" for node in range(3)]
    own = {
        "TFPS_HOSTS": " ".join(nodes),
        "TFPS_TASKS": "chief=1 worker=1900 ps=100",
        "TFPS_FIRST_PORT": "5000",
        "TFPS_RESTARTS": "0",
        "SLURM_PROCID": "7",
        "SLURMD_NODENAME": nodes[1],
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }
    said = subprocess.run(
        [sys.executable, "-m", "cloud.slurm.task", "run", "worker", "acting"],
        env=os.environ | own,
        check=True,
        capture_output=True,
        text=True,
    )
    name, address, path = said.stdout.splitlines()
    assert (name, address) == ("worker 7 of 1900", f"{nodes[1]}:5008")
    assert not pathlib.Path(path).exists()


def test_a_task_on_another_node_is_refused():
    with pytest.raises(UserError, match="ps 1 was started on n3, but the others look for it on n2"):
        tf_config(ENVIRON | {"SLURM_PROCID": "1", "SLURMD_NODENAME": "n3"}, "ps")
    with pytest.raises(UserError, match="TFPS_TASKS is missing"):
        tf_config({"TFPS_HOSTS": "n1"}, "ps")


@pytest.mark.parametrize(
    ("fields", "allocation", "message"),
    [
        ({"image": "i"}, {}, "takes no --image"),
        ({"package": "."}, {}, "takes no --package"),
        ({"network": "n"}, {}, "takes no --network"),
        ({"service_account": "s"}, {}, "takes no --service_account"),
        ({"queue_seconds": 1}, {}, "takes no --queue_seconds"),
        ({"spot": True}, {}, "takes no --spot"),
        ({"roles": roles(disk_type="ssd")}, {}, r"takes no --disk_type \(worker\)"),
        ({"roles": roles(machine="epyc")}, {}, "give one for all roles"),
        (
            {"roles": (*roles()[:3], Role("evaluator", accelerator="a100", accelerators=1))},
            {},
            "on Slurm GPUs are for workers",
        ),
        ({"arguments": (*ARGUMENTS, "--grace_seconds=x")}, {}, "--grace_seconds=x is no number"),
        ({}, {"first_port": 65530}, "8 tasks need as many ports"),
    ],
)
def test_what_slurm_cannot_run_is_refused(fields, allocation, message):
    with pytest.raises(UserError, match=message):
        script(job(**fields), Allocation(**allocation))


class Batch:
    """A batch script that runs as Slurm would run it, with acting tasks."""

    def __init__(self, directory, acting, restarts=1):
        stand_in.install(directory)
        (directory / "acting.py").write_text(
            "import json, os, pathlib, signal, sys, time\n"
            "config = json.loads(os.environ['TF_CONFIG'])\n"
            "job, index = config['task']['type'], config['task']['index']\n"
            "def say(*words): print(job, index, *words, flush=True)\n" + textwrap.dedent(acting)
        )
        spec = JobSpec(
            "trial",
            ("x", "y $HOME"),
            (Role("chief"), Role("worker", 2), Role("ps", 1)),
            module="acting",
            restarts=restarts,
        )
        path = directory / "job.sh"
        path.write_text(script(spec, Allocation(nodes=2, python=sys.executable)))
        own = {
            "PATH": f"{directory}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{directory}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "node[1-2]",
        }
        self.directory = directory
        self.process = subprocess.Popen(
            ["bash", path],
            cwd=directory,
            env=os.environ | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def see(self, pattern):
        for line in self.process.stdout:
            if re.search(pattern, line):
                return
        raise AssertionError(f"no {pattern!r}")

    def finish(self):
        text, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, text

    def log(self, task):
        return (self.directory / f"trial-7-{task}.log").read_text()


SERVE = """
    if job != "chief":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        say("serves", sys.argv[1:])
        time.sleep(60)
"""


def test_the_job_ends_with_its_chief(tmp_path):
    batch = Batch(tmp_path, SERVE + "    time.sleep(0.5)\n    say('done')\n    sys.exit(3)")
    code, text = batch.finish()
    assert (code, text) == (3, "chief 0 done\n")
    for task in ("worker-0", "worker-1", "ps-0"):
        assert batch.log(task) == f"{task.replace('-', ' ')} serves ['x', 'y $HOME']\n"
    assert not (tmp_path / "requeued").exists()


SAVES = """
    got = []
    signal.signal(signal.SIGTERM, lambda *_: got.append(1))
    say("trains")
    while not got:
        time.sleep(0.01)
    time.sleep(0.5)
    say("saved", len(got))
    sys.exit(143)
"""


def test_a_job_that_is_cancelled_saves_and_is_not_queued_again(tmp_path):
    batch = Batch(tmp_path, SERVE + SAVES)
    batch.see("chief 0 trains")
    os.killpg(batch.process.pid, signal.SIGTERM)  # as scancel: the script and every srun
    code, text = batch.finish()
    assert code == 143
    assert "chief 0 saved 1\n" in text
    assert not (tmp_path / "requeued").exists()


def test_before_the_time_is_over_the_chief_saves_and_the_job_is_queued_again(tmp_path):
    batch = Batch(tmp_path, SERVE + SAVES)
    batch.see("chief 0 trains")
    batch.process.send_signal(signal.SIGUSR1)
    code, text = batch.finish()
    assert code == 143
    assert "chief 0 saved 1\n" in text
    assert (tmp_path / "requeued").exists()


def test_a_task_that_dies_is_started_again(tmp_path):
    acting = """
    lives = pathlib.Path(f"{job}-{index}.lives")
    life = int(lives.read_text()) + 1 if lives.exists() else 1
    lives.write_text(str(life))
    say("life", life)
    if job == "worker" and index == 1:
        sys.exit(2)
    if job == "ps" or (job, index, life) == ("worker", 0, 1):
        sys.exit(3)
    if job == "chief" and life == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(2.5 if job == "chief" else 60)
    """
    code, text = Batch(tmp_path, acting).finish()
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("chief 0")] == [
        "chief 0 life 1",
        "chief 0 life 2",
    ]
    assert "chief ended with 137; again in 1 s" in text
    lives = {path.stem: path.read_text() for path in tmp_path.glob("*.lives")}
    assert lives == {"chief-0": "2", "worker-0": "2", "worker-1": "1", "ps-0": "2"}
