"""Starts the local launcher with acting tasks: small scripts on real sockets and signals."""

import os
import queue
import re
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.project import ROOT

PATIENCE = 60  # seconds that any one event may take on a busy machine

# What every acting task begins with. A chief blocks its signals, so that a test may send one as
# soon as it has seen the first line.
PRELUDE = """
import json, os, signal, socket, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]

def say(*words):
    print(*words, flush=True)

def serve(reply=lambda: "ok"):
    # Answers whoever connects, for ever.
    host, port = config["cluster"][job][index].split(":")
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", int(port)))
    server.listen()
    say("serving", os.getpid())
    while True:
        peer = server.accept()[0]
        peer.sendall(reply().encode() + b"\\n")
        peers.append(peer)

def connect(job, index):
    host, port = config["cluster"][job][index].split(":")
    for _ in range(3000):
        try:
            return socket.create_connection((host, int(port)), 30)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise SystemExit(f"no {job} {index}")

def ask(job, index):
    while True:
        try:
            with connect(job, index) as peer:
                return peer.makefile().readline().strip()
        except ConnectionResetError:
            pass  # its server died before it accepted

def wait(*numbers):
    return signal.Signals(signal.sigwait(numbers or (signal.SIGUSR1,)))

peers = []
if job == "chief":
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
"""


class Launcher:
    """A started launcher and the lines it has printed."""

    def __init__(self, argv, environ, stdout=None):
        self.process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.lines = []
        self._queue = queue.Queue()
        if stdout is None:
            self._reader = threading.Thread(target=self._read)
            self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line.decode().removesuffix("\n"))
        self._queue.put(None)

    def see(self, pattern):
        """Waits for a line that holds the pattern; returns the match."""
        while True:
            line = self._queue.get(timeout=PATIENCE)
            assert line is not None, f"never saw {pattern!r} in\n" + "\n".join(self.lines)
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match

    def finish(self):
        """Waits for the end; returns the exit code."""
        while (line := self._queue.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        return self.process.wait(PATIENCE)

    @property
    def text(self):
        return "\n".join(self.lines)

    def close(self):
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self._reader.join(PATIENCE)
            self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture(name="write")
def write_fixture(tmp_path):
    def write(body, name="acting"):
        text = PRELUDE + textwrap.dedent(body)
        (tmp_path / f"{name}.py").write_text(text)

    return write


@pytest.fixture(name="start")
def start_fixture(tmp_path):
    started = []

    def start(*flags, args=("--x",), environ=None, stdout=None, command=("-m", "cloud.local")):
        full = os.environ | {"PYTHONPATH": str(tmp_path)} | (environ or {})
        full = {name: value for name, value in full.items() if value is not None}
        argv = [sys.executable, *command]
        if command[0] == "-m":
            argv += ["--module=acting", f"--log_dir={tmp_path / 'logs'}", *flags, "--", *args]
        started.append(Launcher(argv, full, stdout))
        return started[-1]

    yield start
    for launcher in started:
        launcher.close()


@pytest.fixture(name="start_with_limits")
def start_with_limits_fixture(start, tmp_path):
    """Runs the supervisor as the launcher does, with limits that no test has to wait for."""

    def begin(workers=1, ps=1, **limits):
        (tmp_path / "driver.py").write_text(
            f"""
import os, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from cloud.local.command import commands
from cloud.job_spec import JobSpec
from cloud.local.command import Ports
from cloud.local.task_output import TaskOutput
from cloud.job_spec import Role
from cloud.local.process import TaskStarter
from cloud.local.supervisor import Limits, Supervisor
from tfps.cluster.spec import Cluster
with Ports(1 + {workers} + {ps}) as ports:
    at = tuple(f"127.0.0.1:{{port}}" for port in ports.numbers)
    tasks = Cluster(at[:1], at[1:1 + {workers}], at[1 + {workers}:])
    spec = JobSpec("acting", ("--x",), (Role("chief"),), "acting")
    planned = commands(tasks, spec, pathlib.Path({str(tmp_path)!r}), os.environ, None, {{}})
    relay = TaskOutput(1, is_terminal=False, has_colour=False)
    with TaskStarter(None, os.environ) as starter:
        starter.wait()
        sys.exit(Supervisor(planned, Limits(**{limits!r}), relay, starter).run())
"""
        )
        return start(command=[str(tmp_path / "driver.py")])

    return begin
