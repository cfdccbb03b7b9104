"""What the batch script does, with acting tasks; tests/integration/test_slurm.py has real ones."""

import collections
import os
import re
import signal
import subprocess
import sys
import textwrap

from cloud.job_spec import JobSpec
from cloud.role import Role
from cloud.slurm.script import Allocation, script
from tests.cloud.slurm import stand_in
from tests.project import ROOT

PATIENCE = 60


class Batch:
    """A batch script that runs as Slurm would run it, with acting tasks."""

    def __init__(self, directory, acting, restarts=1):
        stand_in.install(directory)
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
    wait_until(lambda: len(list(pathlib.Path().glob("*.serves"))) == 3)
"""


def test_the_job_ends_with_its_chief(tmp_path):
    batch = Batch(tmp_path, SERVE + "    say('done')\n    sys.exit(3)")
    code, text = batch.finish()
    assert (code, text) == (3, "chief 0 done\n")
    for task in ("worker-0", "worker-1", "ps-0"):
        assert batch.log(task) == f"{task.replace('-', ' ')} serves ['x', 'y $HOME']\n"
    assert not (tmp_path / "requeued").exists()


SAVES = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    say("trains")
    signal.sigwait([signal.SIGTERM])
    again = signal.sigtimedwait([signal.SIGTERM], 0.5)  # which must not come
    say("saved", 2 if again else 1)
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
