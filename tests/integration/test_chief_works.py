"""A worker next to the chief, which no TF_CONFIG names, among tasks that are killed."""

import os
import pathlib
import random
import signal
import time

import psutil
import pytest
from cluster_process import (
    PATIENCE,
    Program,
    assert_gone,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from counting_job import flags, trained
from datasets_on_disk import Datasets
from separate_tasks import SeparateTasks
from test_killed_workers import BATCH, LATEST_KILL, LONG, SIZES, STEP_SECONDS
from test_killed_workers import MODES as ALL_MODES

from cloud.local.command import Ports
from tests import counting_task
from tests.loaded import started
from tfps.data.manifest import Manifest

KILLS = int(os.environ.get("TFPS_KILLS", "12")) // 3  # `make kills` says how many kills
MODES = {  # this job has one ps
    mode: settings
    for mode, settings in ALL_MODES.items()
    if mode != "allreduce" and "one ps" not in mode
}
CONNECTED = r"\[chief\] .*connected to 2 workers and 1 ps"


class Job:
    """A job with one worker, one next to the chief, and one ps."""

    def __init__(self, directory: pathlib.Path, sizes: tuple[int, ...], step_seconds: float):
        self.job_dir = directory / "job"
        self.task = counting_task.CountingTask(records=sum(sizes), step_seconds=step_seconds)
        self.data: Manifest = counting_task.write(directory / "data", self.task, sizes)

    def start(self, *settings: str, restarts: int = 3) -> Program:
        """Starts it with the local launcher."""
        batch = (f"--train.batch_size={BATCH}", "--train.epochs=1")
        own = flags(self.data, self.job_dir, self.task, "--chief_works", *batch, *settings)
        launcher = ("--workers=1", "--ps=1", f"--max_restarts={restarts}", "--")
        return Program(*launcher, *own, module="cloud.local")

    def check(self) -> dict:
        """Checks that all was trained and that nothing runs any more; returns the report."""
        assert_gone(list(started.processes_with(f"--job_dir={self.job_dir}")))
        report = read_report(self.job_dir)
        counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
        assert counts == {"trained": self.task.records, "skipped": 0, "bad": 0}
        assert (trained(self.data, self.task, self.job_dir, 1) > 0).all()
        return report


def keepers(chief: psutil.Process) -> list[psutil.Process]:
    """The processes that keep a chief's worker."""
    module = "trainer.chief.worker_keeper"
    # What a program has left behind that began again are children that have ended.
    running = [each for each in chief.children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in running if module in each.cmdline()]


def running(program: Program, task: str) -> psutil.Process:
    """A task that runs, or is about to be started again."""
    deadline = time.monotonic() + PATIENCE
    while task not in (tasks := program.tasks()):
        assert time.monotonic() < deadline, program.text
        time.sleep(0.1)
    return tasks[task]


@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("mode", MODES)
def test_the_worker_beside_the_chief_is_killed(mode: str, tmp_path: pathlib.Path) -> None:
    job = Job(tmp_path, SIZES, STEP_SECONDS)
    with job.start(f"--mode.name={mode.partition(',')[0]}", *MODES[mode]) as program:
        program.see(CONNECTED)
        time.sleep(random.Random(mode).uniform(0.0, LATEST_KILL / 2))
        program.tasks()["worker 1"].kill()
        program.see(r"^\[worker 1\] worker 1 was killed by SIGKILL; restart 1 of 3 in 1 s")
        program.see(r"^\[worker 1\] .*worker 1 of 2 serves at", seen=len(program.lines) - 1)
        assert program.finish(LONG) == 0, program.text
    report = job.check()
    assert (report["cluster"]["workers"], len(report["workers"])) == (2, 2)
    assert all(share["records"] for share in report["workers"]), report["workers"]
    assert [each["task"] for each in report["failures"]] == ["worker 1"]


@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
def test_the_chief_is_killed_with_its_worker(tmp_path: pathlib.Path) -> None:
    job = Job(tmp_path, SIZES, STEP_SECONDS)
    with job.start("--train.checkpoint_seconds=1") as program:
        program.see(CONNECTED)
        wait_for_checkpoint(job.job_dir)
        tasks = program.tasks()
        gone = [tasks["worker 1"], *keepers(tasks["chief 0"])]
        seen = len(program.lines)
        tasks["chief 0"].kill()
        assert_gone(gone)
        program.see(r"^\[worker 1\] .*worker 1 of 2 serves at", seen)
        program.see(CONNECTED, seen)
        assert program.finish(LONG) == 0, program.text
    job.check()


@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
def test_a_chief_that_begins_again_has_one_worker(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    """It does as soon as a worker can join that was left out."""
    job_dir = tmp_path / "job"
    settings = ("--train.batch_size=8", "--task.dim=2", "--train.epochs=1000")
    own = trainer_flags(datasets.long, job_dir, *settings, "--chief_works")
    with SeparateTasks(own, job_dir, workers=1, ps=1) as tasks:
        port = tasks.enter(Ports(1)).numbers[0]
        own.append(f"--chief_worker_port={port}")
        tasks.serve("ps 0")
        chief = tasks.start("chief 0", "--min_workers=1", "--connect_seconds=20")
        chief.see("left out until it answers: worker 0 at .*refused connections")
        chief.see("connected to 1 workers and 1 ps")
        process = psutil.Process(chief.pid)
        [keeper] = keepers(process)
        [worker] = keeper.children()
        tasks.serve("worker 0")
        chief.see("worker 0 can join; beginning again")
        chief.see("connected to 2 workers and 1 ps")
        for _ in range(2):  # the first may have had all its records when the chief began again
            chief.see("epoch .* trained", seen=len(chief.lines))
        assert keepers(process) == [keeper]
        assert keeper.children() == [worker]
        chief.terminate()
        assert chief.finish() == 128 + signal.SIGTERM, chief.text
        assert_gone([keeper, worker])
    report = read_report(job_dir)
    assert (report["status"], report["examples"]["skipped"]) == ("interrupted", 0)
    assert [bool(share["records"]) for share in report["workers"]] == [True, True]
    assert chief.errors == []


@pytest.mark.slow
@pytest.mark.timeout(120 + 90 * KILLS)
@pytest.mark.parametrize("mode", ["async", "sync"] if KILLS > 4 else ["async"])
def test_every_role_is_killed(mode: str, tmp_path: pathlib.Path) -> None:
    job = Job(tmp_path, (2000 * KILLS, 2000 * KILLS), 0.1)
    draw = random.Random(KILLS)
    roles = ["worker 1", "chief 0", "ps 0", "worker 0"]
    killed: list[str] = []
    settings = (f"--mode.name={mode}", *MODES[mode], "--train.checkpoint_seconds=2")
    with job.start(*settings, "--progress_seconds=0.5", restarts=KILLS) as program:
        seen = 0
        while len(killed) < KILLS:
            program.see(r"\[chief\] .*epoch 1/1: \S+ of \S+ records", seen)
            time.sleep(draw.uniform(0.0, 3.0))
            role = roles[len(killed)] if len(killed) < len(roles) else draw.choice(roles)
            seen = len(program.lines)
            running(program, role).kill()
            name = role.removesuffix(" 0") if role == "chief 0" else role
            program.see(rf"{name} was killed by SIGKILL; restart", seen)
            killed.append(role)
            seen = len(program.lines)
        assert program.finish(LONG + 2 * PATIENCE) == 0, program.text
    report = job.check()
    print(mode, "killed", killed, report["examples"], len(report["recoveries"]))
