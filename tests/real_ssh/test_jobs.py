"""Jobs on three machines that ssh reaches, each in a network of its own."""

import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import counting_task
from tests.integration.cluster_process import checkpoints, read_report, wait_until
from tests.integration.counting_job import flags, trained
from tests.project import ROOT
from tests.real_ssh.machines import PATIENCE, Machine, Machines
from tfps.data.manifest import Manifest

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(1500)]
RECORDS, BATCH, EPOCHS = 600, 20, 2
TASK = counting_task.CountingTask(records=RECORDS, step_seconds=0.1)
HOSTS = "m1,m2,m3"


@pytest.fixture(name="machines", scope="module")
def machines_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machines]:
    """In networks of their own; else addresses of the loopback."""
    is_network = getattr(request, "param", True)
    with Machines(tmp_path_factory.mktemp("ssh"), is_network) as machines:
        yield machines
    assert [x.processes() for x in machines.each] == [[], [], []]


class Submit:
    """What a user types, and what the job has done."""

    def __init__(self, machines: Machines, root: pathlib.Path, data: Manifest) -> None:
        self._machines = machines
        self.job_dir = root / "job"
        self.arguments = flags(data, self.job_dir, TASK, f"--train.batch_size={BATCH}")
        self.arguments += [f"--train.epochs={EPOCHS}"]

    def start(self, *own: str, arguments: list[str] | None = None) -> subprocess.Popen[str]:
        """Starts `cloud.submit`, in a session of its own."""
        command = [sys.executable, "-m", "cloud.submit", *own, "--target=ssh", f"--hosts={HOSTS}"]
        if not own or own[0].startswith("-"):  # no verb
            command += ["--", *(self.arguments if arguments is None else arguments)]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | self._machines.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *own: str, arguments: list[str] | None = None) -> tuple[int, str, str]:
        """Runs it to its end: exit code, stdout and stderr."""
        process = self.start(*own, arguments=arguments)
        out, error = process.communicate(timeout=2 * PATIENCE)
        return process.returncode, out, error

    def job(self, *own: str, arguments: list[str] | None = None) -> str:
        """Submits a job; its name."""
        code, out, error = self.run(*own, arguments=arguments)
        assert code == 0, error
        return re.search(r"^submitted (\S+)$", out, re.MULTILINE)[1]

    def follow(self, job: str) -> tuple[int, str, str]:
        return self.run("follow", job, "--poll_seconds=1")

    def wait_for_checkpoint(self) -> None:
        wait_until(lambda: checkpoints(self.job_dir), PATIENCE)


def is_back(machine: Machine, name: str, pid: int) -> bool:
    """Whether a task runs again as another process."""
    task = machine.tasks().get(name)
    return task is not None and task.pid != pid


@pytest.fixture(name="data")
def data_fixture(tmp_path: pathlib.Path) -> Manifest:
    return counting_task.write(tmp_path / "data", TASK, [100] * 6)


@pytest.fixture(name="submit")
def submit_fixture(machines: Machines, tmp_path: pathlib.Path, data: Manifest) -> Iterator[Submit]:
    yield Submit(machines, tmp_path, data)
    machines.end_jobs()


def assert_complete(submit: Submit, data: Manifest) -> None:
    report = read_report(submit.job_dir)
    assert (report["status"], report["examples"]["skipped"]) == ("finished", 0)
    counted = trained(data, TASK, submit.job_dir, EPOCHS)
    assert counted.min() >= EPOCHS
    assert counted.sum() <= EPOCHS * RECORDS + report["examples"]["repeated"]


@pytest.mark.parametrize("machines", [True, False], ids=["networks", "loopback"], indirect=True)
def test_a_job_is_submitted_listed_described_and_followed(
    machines: Machines, submit: Submit, data: Manifest
) -> None:
    job = submit.job("--name=first", "--env=SEEN=here", "--setup=export SETUP=done")
    assert f"{job}" in submit.run("list")[1]
    said = submit.run("describe", job)[1]
    assert (said.count("state: running"), said.count("export SEEN=here")) == (3, 3)
    assert "export SETUP=done || end 2" in said
    code, out, error = submit.follow(job)
    assert code == 0, error
    for task in ("chief", "worker 0", "worker 1", "worker 2", "ps 0", "m1", "m2", "m3"):
        assert f"\n[{task}] " in out
    assert f"[submit] {job} on 3 machines: SUCCEEDED" in out
    assert_complete(submit, data)
    assert re.search(rf"SUCCEEDED|ENDED 0 +{job}", submit.run("list")[1])
    assert [x.processes() for x in machines.each] == [[], [], []]


def test_each_role_is_killed(machines: Machines, submit: Submit, data: Manifest) -> None:
    arguments = [*submit.arguments, "--train.checkpoint_seconds=0.5"]
    job = submit.job("--workers=3", "--ps=1", "--first_port=23000", arguments=arguments)
    submit.wait_for_checkpoint()
    first, second, third = machines.each
    for machine, name in ((third, "worker-2"), (second, "ps-0"), (first, "chief-0")):
        task = wait_until(lambda at=machine, name=name: at.tasks().get(name), PATIENCE)
        task.kill()
        wait_until(lambda at=machine, name=name, pid=task.pid: is_back(at, name, pid), PATIENCE)
    code, out, error = submit.follow(job)
    assert code == 0, error + out
    assert_complete(submit, data)


def test_the_submitter_is_killed_and_another_follows_and_cancels(
    machines: Machines, submit: Submit
) -> None:
    arguments = [*submit.arguments, "--train.checkpoint_seconds=0.5", "--train.epochs=500"]
    submitter = submit.start("--wait", "--poll_seconds=1", arguments=arguments)
    assert submitter.stdout
    said = ""
    while "connected to" not in said:
        said = submitter.stdout.readline()
        assert said
    os.killpg(submitter.pid, signal.SIGKILL)
    submitter.communicate()
    submit.wait_for_checkpoint()
    created, state, *_, job = submit.run("list")[1].splitlines()[0].split()
    assert (state, created[:2]) == ("RUNNING", "20")
    follower = submit.start("follow", job, "--poll_seconds=1")
    assert submit.run("cancel", job)[0] == 0
    out, error = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 3
    assert f"{job}: FAILED: exit code 143; see ~/.tfps/{job}/0/log on m1" in error
    assert "[chief] " in out
    assert read_report(submit.job_dir)["status"] == "interrupted"
    wait_until(lambda: [x.processes() for x in machines.each] == [[], [], []], PATIENCE)


def test_a_machine_is_lost_and_comes_again(
    machines: Machines, submit: Submit, data: Manifest
) -> None:
    arguments = [*submit.arguments, "--train.checkpoint_seconds=0.5", "--task.step_seconds=1"]
    job = submit.job("--workers=3", "--ps=1", arguments=arguments)
    submit.wait_for_checkpoint()
    follower = submit.start("follow", job, "--poll_seconds=1")
    assert follower.stdout
    lost = machines.each[2]
    lost.lose()
    lines = []
    while not any("[m3] this machine cannot be asked: m3: " in line for line in lines):
        lines.append(follower.stdout.readline())
        assert lines[-1]
    lost.start()
    machines.await_servers()
    while not any("[m3] this machine's tasks do not run; `ssh m3 'bash" in x for x in lines):
        lines.append(follower.stdout.readline())
        assert lines[-1]
    run = ["ssh", "m3", f"bash ~/.tfps/{job}/2/run"]
    subprocess.run(run, env=os.environ | machines.environ, check=True)
    out, error = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 0, error
    assert "[m3] this machine is back" in "".join(lines) + out
    assert_complete(submit, data)


def test_what_is_wrong_with_machines_is_said_before_anything_starts(
    machines: Machines, submit: Submit, tmp_path: pathlib.Path
) -> None:
    first, second, third = machines.each
    machines.know([first, third])
    code, _, error = submit.run()
    assert code == 2
    assert re.search(r"^  m2: Host key verification failed\. Connect once", error, re.MULTILINE)
    machines.know(machines.each)
    second.lose()
    (tmp_path / "bare").mkdir()
    for name in ("sh", "bash"):
        (tmp_path / "bare" / name).symlink_to(f"/bin/{name}")
    second.start(path=f"{tmp_path}/bare")
    machines.await_servers()
    code, _, error = submit.run()
    assert (code, error.count("\n  m")) == (2, 1)
    assert "\n  m2: there is no program python; name it with --python" in error
    second.lose()
    second.start()
    machines.await_servers()
    arguments = [x for x in submit.arguments if not x.startswith("--data.train")]
    code, _, error = submit.run("--directory=/nowhere", arguments=arguments)
    assert (code, error.count("there is no directory /nowhere; name it with --director")) == (2, 3)
    code, _, error = submit.run(arguments=[*arguments, "--data.train=/nowhere/data"])
    assert (code, error.count(": there is no /nowhere/data\n")) == (2, 3)
    assert [x.processes() for x in machines.each] == [[], [], []]
    assert "Traceback" not in error


def test_a_port_that_is_taken_and_one_that_is_closed_are_named(
    machines: Machines, submit: Submit
) -> None:
    second = machines.each[1]
    within = ["ip", "netns", "exec", "tfps-ssh-2"]
    listen = "import socket; s = socket.create_server(('', 23001)); print(1, flush=True); input()"
    with subprocess.Popen(
        [*within, sys.executable, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout
        listener.stdout.readline()
        code, _, error = submit.run("--first_port=23000")
        listener.kill()
    assert code == 2
    assert "\n  m2: something else has port 23001; give another --first_port" in error
    subprocess.run(
        [*within, "ip", "route", "add", "blackhole", machines.each[2].address], check=True
    )
    try:
        code, _, error = submit.run()
    finally:
        subprocess.run(
            [*within, "ip", "route", "del", "blackhole", machines.each[2].address], check=True
        )
    assert code == 2
    assert re.search(rf"\n  m2: it cannot reach {machines.each[2].address} at port \d+: ", error)
    assert second.processes() == []
