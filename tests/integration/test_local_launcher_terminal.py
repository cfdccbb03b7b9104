"""The local launcher on a terminal."""

import os
import pty
import re
import select
import subprocess

from launcher_fixtures import PATIENCE, start_fixture, write_fixture  # noqa: F401


def run_on_terminal(start, environ):
    """Runs the launcher on a terminal of 60 columns; returns its exit code and what it drew."""
    master, terminal = pty.openpty()
    subprocess.run(["stty", "cols", "60", "rows", "20"], stdin=terminal, check=True)
    launcher = start("--workers=1", "--ps=1", environ=environ, stdout=terminal)
    end = os.pidfd_open(launcher.process.pid)
    drawn = b""
    try:
        # The terminal remains open here: what it holds may be lost when the last writer closes it.
        while master in (ready := select.select([master, end], [], [], PATIENCE)[0]):
            drawn += os.read(master, 1 << 16)
        assert end in ready
    finally:
        for descriptor in (master, terminal, end):
            os.close(descriptor)
    return launcher.process.wait(PATIENCE), drawn.decode()


SHOWING = r"""
if job != "chief":
    serve()
say(sys.argv[-1])
ask("worker", 0)
sys.stdout.write("10 % " + "█" * 100 + "\r")
sys.stdout.flush()
sys.stdout.write("a line\n")
sys.stdout.write("20 %\r")
"""


def test_a_status_stays_below_the_lines_of_a_terminal(write, start):
    write(SHOWING)
    code, drawn = run_on_terminal(start, {"NO_COLOR": "1"})
    assert code == 0
    assert "[chief] --progress=live\r\n" in drawn
    bar = "[chief] 10 % " + "█" * 46
    assert f"\r\x1b[K[chief] a line\r\n{bar}" in drawn
    assert f"{bar}█" not in drawn
    assert "\r\x1b[K[chief] 20 %" in drawn
    assert drawn.endswith("\r\x1b[K"), drawn[-400:]
    assert "\x1b[3" not in drawn


def test_names_are_coloured_on_a_terminal(write, start):
    write(SHOWING)
    code, drawn = run_on_terminal(start, {"NO_COLOR": None})
    assert code == 0
    names = dict(re.findall(r"(\x1b\[\d+m)\[(\w+ ?\d?)\]\x1b\[0m ", drawn))
    assert {"launcher", "chief", "worker 0"} <= set(names.values())


TELLING = r"""
from tfps.live_view.status import RunStatus, TaskStatus

if job != "chief":
    serve()
ask("worker", 0)
status = RunStatus(
    config="census",
    mode="async",
    epoch=1,
    epochs=2,
    records=250,
    records_of_epoch=1000,
    examples_per_second=2000.0,
    tasks=(TaskStatus(name="worker 0"), TaskStatus(name="ps 0", state="lost")),
)
sys.stdout.write(status.to_text() + "\r")
sys.stdout.flush()
sys.stdout.write("a line\n")
"""


def test_how_far_a_run_is_stays_below_the_lines_of_a_terminal(write, start):
    write(TELLING)
    code, drawn = run_on_terminal(start, {"NO_COLOR": "1"})
    assert code == 0
    view = re.search(r"census, async, epoch 1/2 ━[^\x1b]*ps 0 +lost", drawn)[0]
    lines = view.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        ["task", "state"],
        ["worker", "0"],
        ["ps", "0"],
    ]
    assert max(map(len, lines)) < 60
    erased = f"\r\x1b[{len(lines) - 1}A\x1b[J"
    assert f"{view}{erased}[chief] a line\r\n{view}" in drawn
    assert drawn.endswith(erased), drawn[-400:]
    assert "tfps_status" not in drawn
