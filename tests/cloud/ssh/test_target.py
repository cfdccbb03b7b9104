"""Jobs on machines that ssh reaches: what is checked, sent and asked."""

import re
import socket
import subprocess
import sys
import time

import pytest
import yaml

from cloud import submit
from cloud.ssh import probe
from cloud.ssh.checks import Needs, check
from cloud.ssh.hosts import Host
from cloud.ssh.sender import SshSender
from tests.cloud.ssh import stand_in
from tests.project import ROOT
from tfps.errors import RunError, UserError

TASKS = ["--", "--config=configs/smoke.py", "--job_dir=gs://bucket/x"]
HOSTS = [Host("m1", "127.0.0.1"), Host("m2", "127.0.0.2")]
NEEDS = Needs(str(ROOT), sys.executable, [], "", [(), ()])


@pytest.fixture(name="client", autouse=True)
def client_fixture(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    stand_in.install(tmp_path)
    return tmp_path


def rendered(capfd, *own, tasks=TASKS):
    argv = ["submit", "--target=ssh", "--hosts=m1 10.0.0.1,m2 10.0.0.2", "--dry_run", *own, *tasks]
    assert submit.main(argv) == 0, capfd.readouterr().err
    return list(yaml.safe_load_all(capfd.readouterr().out))


def test_each_machine_has_a_worker_and_a_ps_unless_it_is_said_how_many(capfd):
    first, second = rendered(capfd, "--env=A=b", "--python=venv/bin/python", "--setup=ulimit -n 9")
    expected = "venv/bin/python -m cloud.node --nodes=10.0.0.1,10.0.0.2 --port=2222 --workers=2"
    assert " ".join(first["command"]).startswith(f"{expected} --ps=2 --max_restarts=3")
    assert first["command"][-3:] == TASKS
    assert (first["environment"], first["setup"]) == ({"A": "b", "RANK": "0"}, ["ulimit -n 9"])
    assert second == {**first, "host": "m2", "environment": {"A": "b", "RANK": "1"}}
    first, _ = rendered(capfd, "--workers=5", "--ps=1", "--first_port=3000")
    assert {"--workers=5", "--ps=1", "--port=3000", "--first_port=3001"} <= set(first["command"])
    first, _ = rendered(capfd, tasks=[*TASKS, "--mode.name=allreduce"])
    assert {"--workers=1", "--ps=0"} <= set(first["command"])
    first, _ = rendered(capfd, tasks=[*TASKS, "--chief_works"])
    assert {"--workers=2", "--ps=2", "--chief_works"} <= set(first["command"])
    first, second = rendered(capfd, "--timeout_seconds=60")
    assert first["command"][:2] == ["timeout", "60"]
    assert second["command"][0] == "python"


def test_a_job_without_ps_has_no_worker_next_to_its_chief(capfd):
    tasks = [*TASKS, "--chief_works", "--mode.name=allreduce"]
    assert submit.main(["submit", "--target=ssh", "--hosts=m1,m2", "--dry_run", *tasks]) == 2
    assert "but the job has no ps: its chief trains already" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ((), "--hosts is missing: name the machines"),
        (("--hosts=m1", "--evaluator", "--workers=1", "--ps=1"), "leave --evaluator out"),
        (("--hosts=m1", "--module=mine"), "--target=ssh runs trainer.task alone"),
        (("--hosts=m1", "--first_port=65533"), "a launcher and 3 tasks need as many ports from 1"),
        (("--hosts=m1", "--partition=x"), "--partition is of --target=slurm, not ssh"),
    ],
)
def test_what_the_machines_cannot_do_is_refused(capfd, own, problem):
    assert submit.main(["submit", "--target=ssh", "--dry_run", *own, *TASKS]) == 2
    assert problem in capfd.readouterr().err


def test_machines_that_have_all_are_told_a_port_to_meet_at(tmp_path):
    shared = tmp_path / "shared"
    port = check(HOSTS, NEEDS._replace(paths=["configs/smoke.py"], job_dir=str(shared / "job")))
    assert port > 1024
    assert list((shared / "job").iterdir()) == []
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(UserError, match=f"m1: something else has port {taken}; give another"):
            check(HOSTS, NEEDS._replace(ports=[[taken], ()]))


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ({"directory": "/nowhere"}, "m2: there is no directory /nowhere; name it with --directory"),
        ({"python": "/nowhere/python"}, "m2: there is no program /nowhere/python; name it with"),
        ({"paths": ["/nowhere"]}, "m2: there is no /nowhere$"),
        ({"job_dir": "/proc/none"}, "m1: .*No such file or directory: '/proc/none'"),
    ],
)
def test_what_machines_lack_is_said_of_each(needs, problem):
    with pytest.raises(UserError, match=problem) as told:
        check(HOSTS, NEEDS._replace(**needs))
    assert "\n" in str(told.value)


def test_machines_are_looked_at_as_set_up_for_the_job(tmp_path):
    own = tmp_path / "python"
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    needs = NEEDS._replace(python="mine", environment={"OF_TASKS": str(tmp_path)})
    link = 'ln -sf "$OF_TASKS/python" "$OF_TASKS/mine"; echo linked; read -r line || true'
    assert check(HOSTS, needs._replace(setup=[link, 'PATH="$OF_TASKS:$PATH"'])) > 1024
    with pytest.raises(UserError, match=r"m1: a line of --setup has failed: .*no_such: command"):
        check(HOSTS, needs._replace(setup=["no_such"]))


def test_a_package_may_come_in_a_distribution_of_another_name(tmp_path, monkeypatch):
    """As tensorflow in tensorflow-cpu."""
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow/__init__.py").touch()
    told = tmp_path / "flow_cpu-2.21.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: flow-cpu\nVersion: 2.21.0\n")
    (told / "RECORD").write_text("flow/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert probe._version("flow") == "2.21.0"
    assert probe._version("no_such_package") is None


def test_a_python_without_packages_is_told_of_with_what_to_do(tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(UserError) as told:
        check(HOSTS, NEEDS._replace(python=str(bare)))
    lacking = "m2: tfps is not there; install it, or name its checkout with --directory"
    assert lacking in str(told.value)
    assert "m2: TensorFlow is not there; install it" in str(told.value)


# A Python that can read no newer text.
OLD_PYTHON = """
import ast, sys
text = sys.argv[2]
ast.parse(text, feature_version=(3, 7))
sys.version_info = (3, 7, 9)
exec(text)
"""


def test_a_python_that_is_too_old_to_read_what_is_asked_is_named(tmp_path):
    (tmp_path / "old.py").write_text(OLD_PYTHON)
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/old.py "$@"\n')
    old.chmod(0o755)
    with pytest.raises(UserError, match=r"m2: Python 3\.7\.9 is too old; name a newer with --py"):
        check(HOSTS, NEEDS._replace(python=str(old)))


def test_what_ssh_says_is_passed_on(client):
    (client / "m2.away").write_text("@@@@@\r\nHost key verification failed.\r\n")
    with pytest.raises(UserError, match=r"m2: Host key verification failed\. Connect once with"):
        check(HOSTS, NEEDS)


def requests(*commands):
    own = {"job": "mine", "directory": "/", "environment": {"WORD": "it's"}, "setup": ["A=1"]}
    return [{**own, "command": ["sh", "-c", each]} for each in commands]


def wait(sender, job, lines):
    while not (status := sender.status(job)).has_ended:
        lines += sender.new_lines(job)
    lines += sender.new_lines(job)
    return status


def test_a_job_is_started_followed_and_kept(client):
    sender, lines = SshSender(HOSTS), []
    job = sender.send(requests("echo '[chief] hello'; echo $WORD; exit 0", "echo '[ps 1] b'"))
    assert re.fullmatch(r"mine-\d{8}-\d{6}-[0-9a-f]{4}", job)
    status = wait(sender, job, lines)
    assert (status.state, status.is_success) == ("SUCCEEDED", True)
    while len(lines) < 3:
        lines += sender.new_lines(job)
    assert sorted(lines) == [("chief", "hello"), ("m1", "it's"), ("ps 1", "b")]
    assert list(sender.new_lines(job)) == []
    [listed] = sender.list()
    assert (listed.name, listed.state) == (job, "ENDED 0")
    first, _ = sender.describe(job)["machines"]
    assert (first["host"], first["state"]) == ("m1", "ended 0")
    assert "export WORD='it'\"'\"'s'" in first["run"]
    with pytest.raises(RunError, match=f"{job} cannot be ended: m1: it does not run there"):
        sender.cancel(job)


def test_a_job_ends_when_it_is_cancelled_and_says_how():
    sender, lines = SshSender(HOSTS), []
    job = sender.send(
        requests("trap 'echo saved; exit 143' TERM; while :; do sleep 0.1; done", ":")
    )
    assert sender.status(job).state == "RUNNING"
    sender.cancel(job)
    status = wait(sender, job, lines)
    assert (status.state, status.is_success) == ("FAILED", False)
    assert status.message == f"exit code 143; see ~/.tfps/{job}/0/log on m1"
    assert ("m1", "saved") in lines


def test_a_job_ends_at_once_when_it_is_cancelled_before_its_launcher_has_begun(client):
    sender = SshSender(HOSTS)
    setup = {"setup": ["touch $own/sets-up; sleep 600"]}
    job = sender.send([{**each, **setup} for each in requests(":", ":")])
    place, other = (client / f"m{rank + 1}" / ".tfps" / job / str(rank) for rank in range(2))
    for each in (place, other):
        await_file(each / "sets-up")
    sender.cancel(job)
    status = wait(sender, job, [])
    assert status.message == f"exit code 143; see ~/.tfps/{job}/0/log on m1"
    await_file(other / "exit_code")  # nobody else could have told it
    # Started again, as after a start of the machine: the launcher's number is somebody else's now.
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (place / "launcher").write_text(f"{stranger.pid}\n")
        (place / "sets-up").unlink()
        subprocess.run(["bash", place / "run"], check=True)
        await_file(place / "sets-up")
        sender.cancel(job)
        assert wait(sender, job, []).state == "FAILED"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def await_file(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def test_a_log_is_read_to_its_end_however_long_it_is(client, monkeypatch):
    monkeypatch.setattr("cloud.ssh.sender._MOST_BYTES", 64)
    sender, lines = SshSender(HOSTS), []
    job = sender.send(requests("seq 100 140; printf '%0200d' 0; echo", ":"))
    while not sender.status(job).has_ended:
        pass
    lines = [text for task, text in sender.new_lines(job) if task == "m1"]
    assert lines[:41] == [str(number) for number in range(100, 141)]
    assert "".join(lines[41:]) == "0" * 200


def test_a_machine_without_ssh_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/directory")
    with pytest.raises(UserError, match="ssh is not on this machine; install OpenSSH's client"):
        check(HOSTS, NEEDS)


def test_machines_that_are_away_are_told_once(client):
    sender = SshSender(HOSTS)
    job = sender.send(requests("while :; do sleep 0.1; done", "while :; do sleep 0.1; done"))
    (client / "m2.away").write_text("ssh: connect to host m2 port 22: No route to host")
    said = [*sender.new_lines(job), *sender.new_lines(job)]
    away = "m2: ssh: connect to host m2 port 22: No route to host"
    assert said == [("m2", f"this machine cannot be asked: {away}")]
    (client / "m2.away").unlink()
    assert list(sender.new_lines(job)) == [("m2", "this machine is back")]
    (client / "m1.away").write_text("ssh: connect to host m1 port 22: No route to host")
    assert sender.status(job).state == "UNREACHABLE"
    sender.cancel(job)  # the others end by themselves
    (client / "m1.away").unlink()
    sender.cancel(job)
    assert wait(sender, job, []).state == "FAILED"


def test_a_job_that_cannot_be_started_everywhere_is_started_nowhere(client):
    sender = SshSender(HOSTS)
    (client / "m1.away").write_text("ssh: connect to host m1 port 22: No route to host")
    with pytest.raises(RunError, match="No route to host"):
        sender.send(requests("sleep 9", "while :; do sleep 0.1; done"))
    (client / "m1.away").unlink()
    [place] = (client / "m2" / ".tfps").iterdir()
    while not (place / "1" / "exit_code").exists():
        pass
    assert sender.list() == []


@pytest.mark.parametrize("job", ["../x", "a b", "", "x;y"])
def test_what_is_no_name_of_a_job_is_refused(job):
    with pytest.raises(UserError, match="is no job; write its name"):
        SshSender(HOSTS).status(job)


def test_a_job_that_is_not_there_is_refused():
    sender = SshSender(HOSTS)
    assert sender.list() == []
    with pytest.raises(UserError, match="m1 has no job other; see the verb list"):
        sender.status("other")
