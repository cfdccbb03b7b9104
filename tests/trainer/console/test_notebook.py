"""Programs that are run from a notebook, here from a process that is interrupted as a kernel is."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.integration.cluster_process import assert_gone
from tests.project import ROOT
from tfps.errors import RunError
from trainer.console import notebook

PATIENCE = 60
# What is run: it says what it is told, and how it ends.
PROGRAM = """
import os, signal, sys, time
way, *rest = sys.argv[1:]
if way == "end":
    print("colours", os.environ.get("FORCE_COLOR"))
    sys.stderr.write("and errors\\n")
    sys.exit(int(rest[0]))
if way == "deaf":
    signal.signal(signal.SIGINT, lambda *_: print("no"))
try:
    print("begun", os.getpid())
    while True:
        time.sleep(0.05)
        if way == "talk":
            print("on")
except KeyboardInterrupt:
    print("saved")
    sys.exit(130)
"""
# What runs it, as a cell does.
CELL = """
import sys
from trainer.console import notebook
try:
    notebook.run("program", sys.argv[1], end_seconds=float(sys.argv[2]))
except KeyboardInterrupt:
    print("the cell is interrupted")
"""


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))


class Cell:
    """A process that runs the program, until the program has begun."""

    def __init__(self, way, end_seconds=PATIENCE):
        command = [sys.executable, "-u", "-c", CELL, way, str(end_seconds)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.program = psutil.Process(int(self.process.stdout.readline().split()[1]))

    def interrupt(self):
        """As Jupyter does: the whole group of the kernel's process."""
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self):
        text, _ = self.process.communicate(timeout=PATIENCE)
        assert_gone([self.program])
        return text.splitlines()


def test_lines_are_shown_without_colours_and_errors_among_them(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    notebook.run("program", "end", "0")
    assert sorted(capsys.readouterr().out.splitlines()) == ["and errors", "colours None"]


def test_a_program_that_fails_fails_the_cell(capsys):
    with pytest.raises(RunError, match="program ended with exit code 3; its lines above say why"):
        notebook.run("program", "end", "3")


def test_an_interrupt_is_the_programs_too_once_and_its_last_lines_are_shown():
    cell = Cell("wait")
    cell.interrupt()
    assert cell.finish() == ["saved", "the cell is interrupted"]
    assert cell.process.returncode == 0


def test_a_program_that_does_not_listen_is_killed():
    cell = Cell("deaf", end_seconds=0.5)
    cell.interrupt()
    assert cell.finish() == ["no", "the cell is interrupted"]


def test_a_program_whose_notebook_is_gone_ends():
    cell = Cell("talk")
    cell.process.kill()
    cell.finish()
