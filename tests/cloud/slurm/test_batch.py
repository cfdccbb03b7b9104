"""What the batch script does, with acting tasks; tests/integration/test_slurm.py has real ones."""

import collections
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from cloud.job_spec import JobSpec, Role
from cloud.slurm.script import Allocation, script
from tests.cloud.slurm import stand_in
from tests.project import ROOT

PATIENCE = 60


class Batch:
    """A batch script that runs as Slurm would run it, with acting tasks."""

    def __init__(self, directory, acting, restarts=1, before_srun=""):
        stand_in.install(directory)
        srun = directory / "srun"
        srun.write_text(srun.read_text().replace("exec", f"{before_srun}\nexec"))
        (directory / "acting.py").write_text(
            "import json, os, pathlib, signal, sys, time\n"
            "config = json.loads(os.environ['TF_CONFIG'])\n"
            "job, index = config['task']['type'], config['task']['index']\n"
            "def say(*words): print(job, index, *words, flush=True)\n"
            "def wait_until(is_so):\n    while not is_so(): time.sleep(0.01)\n"
            f"signal.alarm({PATIENCE})\n" + textwrap.dedent(acting)
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

        (directory / "batch.pid").write_text(str(self.process.pid))

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
        pathlib.Path(f"{job}-{index}.serves").touch()
        signal.pause()
    servers = [f"{x}-{k}" for x in ("worker", "ps") for k in range(len(config["cluster"][x]))]
    wait_until(lambda: all(pathlib.Path(f"{each}.serves").exists() for each in servers))
"""


def test_the_job_ends_with_its_chief(tmp_path):
    batch = Batch(tmp_path, SERVE + "    say('done')\n    sys.exit(3)")
    code, text = batch.finish()
    assert code == 3
    said, *errors = text.splitlines()
    assert said == "chief 0 done"
    assert sorted(errors) == [
        "srun: error: 127.0.0.2: task 0: Exited with exit code 143",  # worker
        "srun: error: 127.0.0.2: task 0: Exited with exit code 143",  # ps
        "srun: error: 127.0.0.2: task 0: Exited with exit code 3",
        "srun: error: 127.0.0.3: task 1: Exited with exit code 143",
    ]
    for task in ("worker-0", "worker-1", "ps-0"):
        assert batch.log(task) == f"{task.replace('-', ' ')} serves ['x', 'y $HOME']\n"
    assert not (tmp_path / "requeued").exists()


SAVES = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    say("trains")
    signal.sigwait([signal.SIGTERM])
    say("saves")
    wait_until(lambda: os.path.exists("may-end"))
    say("saved")
    sys.exit(143)
"""


def may_end(directory):
    (directory / "may-end").touch()


def cancel(batch):
    subprocess.run([batch.directory / "scancel", "7"], cwd=batch.directory, check=True)


def test_a_job_that_is_cancelled_saves_and_is_not_queued_again(tmp_path):
    batch = Batch(tmp_path, SERVE + SAVES)
    batch.see("chief 0 trains")
    cancel(batch)
    may_end(tmp_path)
    code, text = batch.finish()
    assert code == 143
    assert "chief 0 saved\n" in text
    assert not (tmp_path / "requeued").exists()


def test_before_the_time_is_over_the_chief_saves_and_the_job_is_queued_again(tmp_path):
    batch = Batch(tmp_path, SERVE + SAVES)
    batch.see("chief 0 trains")
    batch.process.send_signal(signal.SIGUSR1)
    may_end(tmp_path)
    code, text = batch.finish()
    assert code == 143
    assert "chief 0 saved\n" in text
    # An srun that gets SIGTERM itself kills its tasks.
    assert "forcing job termination" not in text
    assert "137" not in text
    assert (tmp_path / "requeued").exists()


WAIT_FOR_SLURM = "echo srun waits; until [ -e slurm-is-ready ]; do sleep 0.02; done"


@pytest.mark.slow
def test_a_task_that_starts_when_the_time_is_over_is_asked_to_end_too(tmp_path):
    """Its srun may have waited for Slurm meanwhile."""
    batch = Batch(tmp_path, SERVE + SAVES, before_srun=WAIT_FOR_SLURM)
    batch.see("srun waits")
    batch.process.send_signal(signal.SIGUSR1)
    batch.see("scancel finds no task")
    (tmp_path / "slurm-is-ready").touch()
    may_end(tmp_path)
    assert batch.finish()[0] == 143
    assert (tmp_path / "requeued").exists()


def test_a_job_that_is_cancelled_when_its_time_is_over_is_not_queued_again(tmp_path):
    batch = Batch(tmp_path, SERVE + SAVES)
    batch.see("chief 0 trains")
    batch.process.send_signal(signal.SIGUSR1)
    batch.see("chief 0 saves")
    cancel(batch)
    batch.see("forcing job termination")
    may_end(tmp_path)
    code, text = batch.finish()
    assert code == 143
    assert "chief 0 saved\n" in text
    assert not (tmp_path / "requeued").exists()


def test_a_task_that_dies_is_started_again(tmp_path):
    acting = """
    def lives(task):
        return len(list(pathlib.Path().glob(f"{task}.life-*")))
    life = lives(f"{job}-{index}") + 1
    if (job, index, life) == ("worker", 1, 1):
        os.symlink(str(os.getppid()), "who-may-start-it-again")
    pathlib.Path(f"{job}-{index}.life-{life}").touch()
    say("life", life)
    if job == "worker" and index == 1:
        sys.exit(2)
    if job == "ps" or (job, index, life) == ("worker", 0, 1):
        sys.exit(3)
    if job == "chief" and life == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if job != "chief":
        signal.pause()
    wait_until(lambda: lives("worker-0") == lives("ps-0") == 2 and lives("worker-1") == 1)
    parent = os.readlink("who-may-start-it-again")
    wait_until(lambda: not os.path.exists(f"/proc/{parent}"))
    """
    code, text = Batch(tmp_path, acting).finish()
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("chief 0")] == [
        "chief 0 life 1",
        "chief 0 life 2",
    ]
    assert "chief ended with 137; again in 1 s" in text
    lives = collections.Counter(path.stem for path in tmp_path.glob("*.life-*"))
    assert lives == {"chief-0": 2, "worker-0": 2, "worker-1": 1, "ps-0": 2}


# A chief that asks for a size, and ends with a code, in each of its runs.
ASKS = """
    before = sorted(pathlib.Path().glob("run-*"))
    pathlib.Path(f"run-{len(before)}").touch()
    say("has", *(len(config["cluster"][role]) for role in ("worker", "ps")))
    size, code = ENDS[len(before)]
    if size:
        pathlib.Path(os.environ["TFPS_NEW_SIZE"]).write_text(json.dumps(size))
    if code is not None:
        sys.exit(code)
"""


def asking(*ends):
    """Acting tasks; a code that is None has the chief train until it is to save."""
    return SERVE + ASKS.replace("ENDS", str(ends)) + SAVES


def test_tasks_are_started_in_the_numbers_that_the_chief_asks_for(tmp_path):
    batch = Batch(tmp_path, asking(([3, 2], 75), (None, 0)))
    code, text = batch.finish()
    assert code == 0, text
    assert re.findall("chief 0 has (.*)", text) == ["2 1", "3 2"]
    assert "beginning again with chief=1 worker=3 ps=2, of chief=1 worker=2 ps=1" in text
    assert batch.log("worker-2") == "worker 2 serves ['x', 'y $HOME']\n"
    assert list(tmp_path.glob("*.tasks")) == []


@pytest.mark.slow
def test_it_goes_back_once_where_the_run_cannot_have_them(tmp_path):
    batch = Batch(tmp_path, asking(([3, 1], 75), (None, 2), (None, 2)))
    code, text = batch.finish()
    assert code == 2, text
    assert re.findall("chief 0 has (.*)", text) == ["2 1", "3 1", "2 1"]
    assert "the run cannot have chief=1 worker=3 ps=1: going back to chief=1 worker=2 ps=1" in text


@pytest.mark.slow
def test_a_job_that_is_queued_again_has_the_numbers_that_it_had_at_last(tmp_path):
    acting = asking(([3, 1], 75), (None, None), (None, 0))
    batch = Batch(tmp_path, acting)
    may_end(tmp_path)
    batch.see("chief 0 trains")
    batch.process.send_signal(signal.SIGUSR1)
    assert batch.finish()[0] == 143
    assert (tmp_path / "requeued").exists()
    code, text = Batch(tmp_path, acting).finish()
    assert code == 0, text
    assert re.findall("chief 0 has (.*)", text) == ["3 1"]
    assert list(tmp_path.glob("*.tasks")) == []
