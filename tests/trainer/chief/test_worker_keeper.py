import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.project import ROOT
from trainer.chief.worker_keeper import NICENESS, Orders

LIMIT = 60
# Starts a keeper as the chief does, tells its process id, and begins its program again when told.
CHIEF = """
import os, sys
if "BEGUN" not in os.environ:
    orders = os.open(sys.argv[1], os.O_RDONLY)
    command = [sys.executable, "-m", "trainer.chief.worker_keeper", str(os.getpid())]
    found = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, orders, 0)]
    )
    os.environ["BEGUN"] = str(found)
    print("keeper", found, flush=True)
else:
    print("begun again", flush=True)
for line in sys.stdin:
    os.execv(sys.executable, sys.orig_argv)
"""


class Chief:
    """A process that has started a keeper."""

    def __init__(self, directory, acting, restarts=2, labels=None):
        """Starts it.

        Args:
            directory: Of the orders.
            acting: The worker's program.
            restarts: How often the worker is restarted.
            labels: Of lines of JSON.
        """
        command = [sys.executable, "-c", acting]
        orders = Orders("worker 7", command, dict(os.environ), restarts, labels or {})
        file = directory / "orders"
        file.write_text(json.dumps(dataclasses.asdict(orders)))
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHIEF, str(file)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.keeper = int(self.line().split()[1])

    def line(self):
        """The next line of its output, or of the worker's."""
        return self.process.stdout.readline().removesuffix("\n")

    def rest(self):
        """Those that follow until the keeper has ended; ends the chief."""
        wait_until(lambda: psutil.Process(self.keeper).status() == psutil.STATUS_ZOMBIE)
        self.process.kill()
        return self.process.stdout.read().splitlines()


@pytest.fixture(name="start")
def start_fixture(tmp_path):
    """Starts a chief, whose end is the test's."""
    with contextlib.ExitStack() as stack:

        def start(*args, **kwargs):
            chief = Chief(tmp_path, *args, **kwargs)
            stack.enter_context(chief.process)
            stack.callback(chief.process.kill)
            return chief

        yield start


def wait_until(is_so):
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


SAYS = "import os, signal, sys, time; print('it is', os.getpid(), os.nice(0), flush=True); "
WAITS = SAYS + "time.sleep(1000)"


def test_the_worker_is_nicer_than_the_chief_and_ends_with_it(start):
    chief = start(WAITS)
    name, _, pid, nice = chief.line().rsplit(" ", 3)
    assert name == "[worker 7] it"
    assert int(nice) == os.nice(0) + NICENESS
    score = pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text()
    assert int(score) > int(pathlib.Path("/proc/self/oom_score_adj").read_text())
    processes = [psutil.Process(int(pid)), psutil.Process(chief.keeper)]
    os.kill(int(pid), signal.SIGSTOP)  # it could not end by itself
    chief.process.kill()
    assert psutil.wait_procs(processes, LIMIT)[1] == []


def test_a_chief_that_begins_again_keeps_its_worker(start):
    chief = start(WAITS)
    pid = int(chief.line().split()[-2])
    chief.process.stdin.write("again\n")
    chief.process.stdin.flush()
    assert chief.line() == "begun again"
    assert psutil.Process(pid).ppid() == chief.keeper
    assert [each.pid for each in psutil.Process(chief.process.pid).children()] == [chief.keeper]


def test_a_worker_that_dies_is_started_again_so_many_times(start):
    chief = start(SAYS + "os.kill(os.getpid(), signal.SIGKILL)")
    lines = [line for line in chief.rest() if "it is" not in line]
    assert lines == [
        "[worker 7] worker 7 was killed by SIGKILL; restart 1 of 2 in 1 s",
        "[worker 7] worker 7 was killed by SIGKILL; restart 2 of 2 in 2 s",
        "[worker 7] worker 7 was killed by SIGKILL after 2 restarts and stays away",
    ]


@pytest.mark.parametrize(
    ("code", "said"), [(2, ["[worker 7] worker 7 ended with exit code 2 and stays away"]), (0, [])]
)
def test_one_that_cannot_run_or_is_done_is_not(start, code, said):
    chief = start(SAYS + f"sys.exit({code})")
    assert [line for line in chief.rest() if "it is" not in line] == said


def test_one_that_ends_as_all_are_asked_to_is_not(start):
    """As Slurm and a terminal signal every process."""
    chief = start(WAITS)
    pid = int(chief.line().split()[-2])
    for each in (chief.keeper, pid):
        os.kill(each, signal.SIGTERM)
    assert chief.rest() == []


def test_lines_for_programs_are_objects(start):
    labels = {"role": "worker", "index": "7", "job": "mine"}
    chief = start("import sys; print('{}', flush=True); sys.exit(3)", restarts=0, labels=labels)
    own, said = map(json.loads, chief.rest())
    assert own == {}
    assert said["message"] == "worker 7 ended with exit code 3 and stays away"
    assert said["severity"] == "ERROR"
    assert said["logging.googleapis.com/labels"] == labels
