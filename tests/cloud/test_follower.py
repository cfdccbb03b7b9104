"""What a follower shows of a job, on a terminal and elsewhere."""

import contextlib
import os
import pty
import subprocess

import pytest

from cloud.remote_target import Follower, PollOptions
from cloud.target import JobStatus
from tests.live_view.test_status import run_status


class Platform:
    """A platform on which a job has written some lines, and has ended."""

    def __init__(self, lines):
        self._lines = lines

    def status(self, job):
        return JobStatus(
            name=job, title=job, state="DONE", created="", has_ended=True, is_success=True
        )

    def new_lines(self, job):
        lines, self._lines = self._lines, []
        return lines


LINES = [("chief", "a line"), ("chief", run_status().to_text()), ("worker 0", "two\nlines")]


@pytest.fixture
def show(monkeypatch):
    """Follows a job; returns what was written to a file, or to a terminal."""

    def run(writing, reading):
        with open(writing, "w") as stdout:
            monkeypatch.setattr("sys.stdout", stdout)
            assert Follower(Platform(LINES), PollOptions(10.0, 0.0)).follow("job", "") == 0
        drawn = b""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more
            while data := os.read(reading, 1 << 16):
                drawn += data
        os.close(reading)
        return drawn.decode()

    return run


def test_a_status_is_a_line_where_there_is_no_terminal(show):
    reading, writing = os.pipe()
    assert show(writing, reading).splitlines() == [
        "[submit] job: DONE",
        "[chief] a line",
        f"[chief] {run_status().line}",
        "[worker 0] two",
        "[worker 0] lines",
    ]


def test_a_status_is_drawn_below_the_lines_of_a_terminal(show, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    master, terminal = pty.openpty()
    subprocess.run(["stty", "cols", "60", "rows", "20"], stdin=terminal, check=True)
    drawn = show(terminal, master)
    view = drawn[drawn.index("census, async") : drawn.index("\r\x1b[")]
    assert "ps 0" in view.splitlines()[-1]
    erased = f"\r\x1b[{view.count(chr(10))}A\x1b[J"
    assert f"{view}{erased}[worker 0] two\r\n{view}" in drawn
    assert drawn.endswith(erased)
