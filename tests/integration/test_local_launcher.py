"""The local launcher: what it starts, what it prints, what it refuses."""

import json
import os
import re
import subprocess
import sys

import pytest
from launcher_fixtures import PATIENCE, ROOT, start_fixture, write_fixture  # noqa: F401

from tfps.cluster.tf_config import decode

SUBMIT = ("-m", "cloud.submit")


def test_every_role_gets_its_place_and_its_flags(write, start, tmp_path):
    write(
        """
        report = json.dumps([
            os.environ["TF_CONFIG"], os.environ.get("CLUSTER_SPEC"), os.environ["PYTHONUNBUFFERED"],
            os.environ["MINE"], sys.argv[1:], os.getsid(0) == os.getpid(), sys.stdin.read()
        ])
        if job != "chief":
            serve(lambda: report)
        say(report)
        for server, number in ("worker", 0), ("worker", 1), ("ps", 0):
            say(ask(server, number))
        sys.exit(5)
        """
    )
    environ = {"TF_CONFIG": "junk", "CLUSTER_SPEC": "junk", "MINE": "kept"}
    launcher = start("--workers=2", "--ps=1", args=["--a=1", "b c"], environ=environ)
    assert launcher.finish() == 5
    reports = [
        json.loads(line.removeprefix("[chief] "))
        for line in launcher.lines
        if line.startswith("[chief] [")
    ]
    found = [decode({"TF_CONFIG": report[0]}) for report in reports]
    assert [at.name for at in found] == ["chief", "worker 0 of 2", "worker 1 of 2", "ps 0 of 1"]
    assert all(at.spec() == found[0].spec() for at in found)
    assert all(at.address.startswith("127.0.0.1:") for at in found)
    for at, (_, spec, unbuffered, mine, argv, leads_session, typed) in zip(
        found, reports, strict=True
    ):
        assert (spec, unbuffered, mine, leads_session, typed) == (None, "1", "kept", True, "")
        log = f"--tensorflow_log={tmp_path}/logs/{at.job}-{at.index}.log"
        assert argv == ["--a=1", "b c", log] + ["--progress=lines"] * (at.job == "chief")


def test_the_evaluator_is_a_task_but_not_of_the_cluster(write, start, tmp_path):
    write(
        """
        report = json.dumps([os.environ["TF_CONFIG"], sys.argv[-1]])
        if job != "chief":
            serve(lambda: report)
        say(report)
        say(ask("evaluator", 0))
        """
    )
    launcher = start("--workers=1", "--ps=1", "--evaluator")
    assert launcher.finish() == 0
    assert launcher.lines[0].endswith("; an evaluator")
    reports = [json.loads(line[8:]) for line in launcher.lines if line.startswith("[chief] [")]
    chief, evaluator = (decode({"TF_CONFIG": report[0]}) for report in reports)
    assert (chief.job, evaluator.job) == ("chief", "evaluator")
    assert chief.spec() == evaluator.spec()
    assert set(chief.spec()) == {"chief", "worker", "ps"}
    assert chief.evaluators == evaluator.evaluators != ()
    assert reports[1][1] == f"--tensorflow_log={tmp_path}/logs/evaluator-0.log"


def test_what_is_printed_at_the_start(write, start, tmp_path):
    write("sys.exit(0)")
    launcher = start("--workers=1", "--ps=1")
    assert launcher.finish() == 0
    at = r"127\.0\.0\.1:\d+"
    assert re.fullmatch(
        rf"\[launcher\] cluster: chief {at}; worker {at}; ps {at}", launcher.lines[0]
    )
    assert launcher.lines[1] == f"[launcher] logs: {tmp_path}/logs"
    assert launcher.lines[2].startswith("[launcher] security: ")
    assert "without authentication" in launcher.lines[2]


@pytest.mark.parametrize(
    ("args", "ends"),
    [
        (["--job_dir={}/job"], "/job/logs"),
        (["--job_dir", "{}/job"], "/job/logs"),
        (["--job_dir={}/first", "-job_dir={}/job"], "/job/logs"),
        (["--job_dir=gs://bucket/job"], None),
        (["--x"], None),
    ],
)
def test_logs_lie_in_a_local_job_dir_else_in_a_temporary_one(write, start, tmp_path, args, ends):
    write("say(sys.argv[-2]) if job == 'chief' else serve()")
    launcher = start(
        "--log_dir=",
        "--workers=1",
        args=[arg.format(tmp_path) for arg in args],
        environ={"TMPDIR": str(tmp_path)},
    )
    assert launcher.finish() == 0
    log_dir = re.search(r"logs: (.*)", launcher.lines[1])[1]
    assert os.path.isdir(log_dir)
    assert f"--tensorflow_log={log_dir}/chief-0.log" in launcher.text
    if ends:
        assert log_dir == f"{tmp_path}{ends}"
    else:
        assert re.fullmatch(rf"{tmp_path}/tfps-logs-\w+", log_dir)


def test_a_progress_of_ones_own_is_kept(write, start):
    write("say(sys.argv[1:])")
    launcher = start("--workers=1", args=["--progress=none"])
    assert launcher.finish() == 0
    assert "--progress=lines" not in launcher.text


def test_output_comes_whole(write, start):
    write(
        r"""
        if job != "chief":
            serve()
        for number in range(20000):
            print("line", number)
        sys.stdout.buffer.write(b"bytes \xff\xfe \xe2\x82\xac\r\n\n" + b"status\r" * 3)
        sys.stdout.buffer.write(b"y" * 200000 + b"\nno end")
        """
    )
    launcher = start("--workers=1")
    assert launcher.finish() == 0
    chief = [line for line in launcher.lines if line.startswith("[chief]")]
    assert chief[:20000] == [f"[chief] line {number}" for number in range(20000)]
    assert chief[20000:20002] == [r"[chief] bytes \xff\xfe €", "[chief] "]
    assert sum(line.count("y") for line in chief[20002:-1]) == 200000
    assert chief[-1] == "[chief] no end"
    assert "status" not in launcher.text
    assert "\x1b" not in launcher.text


@pytest.mark.parametrize("code", [3, 6])
def test_the_end_of_the_log_of_a_task_that_did_not_tell_why_it_ended(write, start, tmp_path, code):
    write(
        f"""
        if job != "chief":
            serve()
        with open(sys.argv[-2].split("=")[1], "a") as log:
            log.writelines(f"native line {{number}}\\n" for number in range(50))
        sys.exit({code})
        """
    )
    log = tmp_path / "logs" / "chief-0.log"
    log.parent.mkdir()
    log.write_text("of an earlier run\n")
    launcher = start("--workers=1")
    assert launcher.finish() == code
    place = f"[launcher] chief's log is {log}" + (", which ends:" if code == 6 else "")
    tail = [f"[chief] | native line {number}" for number in range(40, 50)] if code == 6 else []
    after = launcher.lines[launcher.lines.index(place) + 1 :]
    own = ("[chief]", "[launcher]")  # a server may still say that it serves
    assert [line for line in after if line.startswith(own)] == tail
    assert "earlier run" not in launcher.text


@pytest.mark.slow
def test_twenty_launchers_at_once_have_disjoint_ports(write, start):
    write("serve() if job != 'chief' else (ask('worker', 0), ask('ps', 0), say('up'), wait())")
    launchers = [start("--workers=1", "--ps=1") for _ in range(20)]
    ports = []
    for launcher in launchers:
        ports += re.findall(r":(\d+)", launcher.see(r"cluster: .*")[0])
    for launcher in launchers:
        launcher.see(r"\[chief\] up")
    assert len(set(ports)) == len(ports) == 60


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--workers=0", "--", "x"], "--workers=0 --ps=2 is no cluster; a cluster needs a worker"),
        (["--workers=0", "--ps=0", "--", "x"], "python -m trainer.task --mode.name=local"),
        (["--ps=-1", "--", "x"], "--ps=-1"),
        (["--workers=two", "--", "x"], "--workers=two"),
        (["--max_restarts=-1", "--", "x"], "--max_restarts=-1"),
        (["--workres=2", "--", "x"], "workres"),
        (["--workers=2"], "put them after --"),
        (["--workers=2", "--"], "put them after --"),
        (["census", "--", "x"], "unexpected argument 'census'"),
        (["--noevaluator=1"], "error: --noevaluator=1 does not take an argument; `python -m cloud"),
        (["--config=a.py"], "stand behind --: python -m cloud.local … -- --config=…"),
        (["--module=no.such", "--", "x"], "--module=no.such: there is no such module"),
        (["--module=", "--", "x"], "there is no such module"),
        (["--module=../x", "--", "x"], "there is no such module"),
        (["--module=json", "--", "x"], "--module=json: there is no such module to run"),
        (["--module=acting", "--", "--tensorflow_log=x"], "give the launcher --log_dir"),
        (["--module=acting", "--log_dir=/dev/null/x", "--", "x"], "cannot make a directory"),
        (["--module=acting", "--", "--job_dir=/dev/null/x"], "cannot make a directory"),
    ],
)
def test_bad_flags(write, tmp_path, argv, message):
    write("")
    done = subprocess.run(
        [sys.executable, "-m", "cloud.local", *argv],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_launcher_imports_tensorflow():
    code = (
        "import importlib, pkgutil, sys, cloud\n"
        "names = [m.name for m in pkgutil.walk_packages(cloud.__path__, 'cloud.')]\n"
        "assert 'cloud.local' in names\n"
        "for name in names: importlib.import_module(name)\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("unit", ["epoch 1/2", "dataset 3"])
def test_faults_are_injected_and_reported(write, start, unit):
    write(
        f"""
        if job != "chief":
            serve()
        peer = connect("worker", 0)
        say("{unit}: 1 of 10 records")
        while peer.recv(10):  # until the worker is gone
            pass
        say("{unit}: 1 of 10 records")
        say("{unit}: 2 of 10 records")
        """
    )
    launcher = start("--workers=1", "--chaos=kill:worker:*@2s", "--max_restarts=0")
    launcher.see(r"\[launcher\] chaos: kill worker 0$")
    launcher.finish()
    assert re.search(
        r"\[launcher\] chaos: kill worker 0 at \d\.\d s; next batch trained: \d\.\d s later",
        launcher.text,
    )


def test_a_stopped_task_may_be_killed_before_it_would_continue(write, start):
    write(
        """
        if job != "chief":
            serve()
        peer = connect("worker", 0)
        while peer.recv(10):  # until the worker is gone
            pass
        while ask("worker", 0) != "ok":  # until it is back
            pass
        """
    )
    launcher = start("--workers=1", "--chaos=stop:worker:0@2s+1.5s,kill:worker:0@3s")
    assert launcher.finish() == 0
    assert "restart 1 of" in launcher.text
    assert launcher.process.stderr.read() == b""


def test_bad_chaos_is_refused_before_anything_starts(write, start):
    write("say('started')")
    launcher = start("--workers=1", "--chaos=kill:worker:1@2s")
    assert launcher.finish() == 2
    assert launcher.lines == []
    assert b"the cluster has 1 worker; indices start at 0" in launcher.process.stderr.read()


def test_a_job_for_any_platform_runs_here(write, start, tmp_path):
    write(
        """
        report = json.dumps([os.environ["MINE"], os.environ["TF_CONFIG"], sys.argv[1:]])
        if job != "chief":
            serve(lambda: report)
        say(report)
        say(ask("worker", 1))
        sys.exit(6)
        """
    )
    flags = ("--workers=2", "--ps=1", "--machine=type=n2-standard-8", "--env=MINE=x")
    launcher = start("--target=local", *flags, command=SUBMIT)
    assert launcher.finish() == 6
    assert launcher.lines[2] == "[launcher] not used here: machines"
    reports = [json.loads(line[8:]) for line in launcher.lines if line.startswith("[chief] [")]
    assert [report[0] for report in reports] == ["x", "x"]
    names = [decode({"TF_CONFIG": report[1]}).name for report in reports]
    assert names == ["chief", "worker 1 of 2"]


def test_a_job_of_one_process_runs_here(start, tmp_path):
    acting = "import os, sys\nprint('TF_CONFIG' in os.environ, sys.argv[1])\n"
    (tmp_path / "acting.py").write_text(acting)
    launcher = start("--target=local", command=SUBMIT)
    assert launcher.finish() == 0
    assert launcher.lines[0] == "[launcher] one process, no cluster"
    assert "[chief] False --x" in launcher.lines


def test_a_job_has_a_limit_of_time(write, start):
    write("serve() if job != 'chief' else wait(signal.SIGTERM)")
    limits = ("--timeout_seconds=2", "--grace_seconds=0")
    launcher = start("--target=local", "--workers=1", "--ps=1", *limits, command=SUBMIT)
    assert launcher.finish() == 3
    assert "[launcher] the time of the run (--timeout_seconds) is over: ending it" in launcher.lines
