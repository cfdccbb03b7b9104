"""The process of which the local launcher's tasks are forks."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from launcher_fixtures import PATIENCE, start_fixture, write_fixture  # noqa: F401

from cloud.job_spec import JobSpec, Role
from cloud.local import forking, launch
from cloud.local.fork import Order
from tests.project import ROOT

LOADING = "loading TensorFlow"


def starter_of(launcher):
    """The process of which tasks are forks, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while not (found := psutil.Process(launcher.process.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0]


def await_end(process):
    """Waits until a process has ended, be it that nobody asks how."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_task_is_listed_as_what_it_runs(write, start, tmp_path):
    write("serve()")
    launcher = start("--workers=1", "--ps=1", args=["--a=1"])
    pid = int(launcher.see(r"worker 0\] serving (\d+)")[1])
    task = psutil.Process(pid)
    log = f"--tensorflow_log={tmp_path}/logs/worker-0.log"
    assert task.cmdline()[1:] == ["-m", "acting", "--a=1", log]
    assert task.ppid() == starter_of(launcher).pid


def test_tasks_end_with_the_process_that_starts_them(write, start):
    write("serve()")
    launcher = start("--workers=1", "--ps=1", "--max_restarts=9")
    task = psutil.Process(int(launcher.see(r"worker 0\] serving (\d+)")[1]))
    starter_of(launcher).kill()
    assert launcher.finish() == 3
    await_end(task)
    said = launcher.process.stderr.read().decode()
    assert said.startswith("error: cannot start ")
    assert said.endswith(": the process that starts all tasks is gone\n")


def test_nothing_breaks_in_a_task_once_nobody_reads_it(tmp_path):
    """So it is while Linux ends what a launcher that was killed leaves."""
    closed = tmp_path / "closed"
    (tmp_path / "acting.py").write_text(
        f"import os\nwhile not os.path.exists({str(closed)!r}): pass\nprint('a line', flush=True)\n"
    )
    orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-m", forking.__name__]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with orders, subprocess.Popen(argv, cwd=ROOT, env=environ, stdin=other.fileno()) as process:
        other.close()
        assert orders.recv(len(forking.LOADED)) == forking.LOADED
        reading, writing = os.pipe()
        order = Order([sys.executable, "-m", "acting"], environ)
        fork = forking.order(orders, order, writing, writing, reading)
        for file in (reading, writing, fork.handle):
            os.close(file)
        closed.touch()
        with fork.answers:
            assert forking.end_of(fork.answers).code == 0
        orders.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("module", "path", "loaded"),
    [
        ("trainer.task", "runs/x", "trainer.loaded"),
        ("trainer.task", "gs://bucket/x", None),  # whose client is another one in workers
        ("acting", "runs/x", None),
    ],
)
def test_tasks_load_by_themselves_where_they_differ_in_what_they_load(
    monkeypatch, module, path, loaded
):
    monkeypatch.setenv("PATH", "/nowhere")  # without nvidia-smi
    arguments = ("--config=a.py", f"--job_dir={path}")
    spec = JobSpec("one", arguments, (Role("chief"),), module)
    assert launch._loaded_for(spec) == loaded


def test_a_signal_while_tensorflow_loads_ends_the_launcher(start):
    launcher = start("--module=trainer.task", args=["--config=a.py", "--job_dir=b"])
    launcher.see(LOADING)
    starter = starter_of(launcher)
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.finish() == 128 + signal.SIGINT
    assert launcher.process.stderr.read() == b""
    await_end(starter)


def test_what_cannot_be_loaded_is_said_once(start, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('a broken installation')\n")
    launcher = start("--module=trainer.task", args=["--config=a.py", "--job_dir=b"])
    assert launcher.finish() == 3
    said = launcher.process.stderr.read().decode()
    assert said.count("ImportError: a broken installation") == 1
    assert "error: the process that starts all tasks has ended while it loaded" in said
