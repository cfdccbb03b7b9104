import os
import subprocess
import sys
import textwrap

import pytest

from tests.project import ROOT
from tfps.cluster.monitor import Failure
from tfps.job_dir.task_name import TaskName
from trainer.chief.state import Recoveries, RestartState, WorkerChanges

PROGRAM = """
import os, sys, time
sys.path.insert(0, {root!r})
from tfps.cluster.monitor import Failure
from tfps.job_dir.task_name import TaskName
from trainer.chief.state import RestartState
from trainer.chief.state import WorkerChanges
from trainer.chief.interruption import has_restarted, restart_process

if has_restarted():
    for _ in range(2):  # as often as it is asked for
        found = RestartState.load()
    print(len(found.failures), found.failures[-1].task, time.monotonic() - found.began < 600)
else:
    seen = "its port refused connections"
    lost = [Failure(TaskName("worker", k), seen, 1.7e9 + k, 12.5) for k in range(5000)]
    RestartState(failures=lost).save()
    restart_process()
"""


def test_the_next_program_finds_what_was_left(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    recoveries = Recoveries()
    recoveries.restored(100)
    recoveries.trained(300)
    recoveries.begin("ps 0 was lost")
    failures = [
        Failure(TaskName("ps", 0), "its port refused connections", 5.0, 2.5),
        Failure(TaskName("worker", 3), "?", 6.0),
    ]
    changes = WorkerChanges()
    changes.begin()
    left = RestartState(recoveries, failures, 17.25, {"ps": 3, "worker": 1200}, changes)
    left.save()
    found = RestartState.load()
    assert found == left


def test_a_run_that_begins_has_lost_nothing():
    found = RestartState.load()
    assert (found.recoveries.made, list(found.failures)) == ([], [])


@pytest.mark.slow
def test_many_failures_are_no_obstacle(tmp_path):
    """Linux takes no string of more than 128 KiB to a program that begins."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).format(root=str(ROOT)))
    names = ("TFPS_STARTED_ANEW", "TFPS_HANDOVER")
    run = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={name: x for name, x in os.environ.items() if name not in names},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == "5000 worker 4999 True"


def test_the_environment_of_another_program_is_no_handover(monkeypatch):
    for number in ("9999", "0"):
        monkeypatch.setitem(os.environ, "TFPS_HANDOVER", number)
        assert list(RestartState.load().failures) == []
