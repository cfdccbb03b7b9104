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
    os.close(terminal)
    drawn = b""
    try:
        while select.select([master], [], [], PATIENCE)[0]:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # every process has closed the terminal
                break
            drawn += data
    finally:
        os.close(master)
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
    assert "[chief] --progress=bar\r\n" in drawn
    bar = "[chief] 10 % " + "█" * 46
    assert f"\r\x1b[K[chief] a line\r\n{bar}" in drawn
    assert f"{bar}█" not in drawn
    assert "\r\x1b[K[chief] 20 %" in drawn
    assert drawn.endswith("\r\x1b[K")
    assert "\x1b[3" not in drawn


def test_names_are_coloured_on_a_terminal(write, start):
    write(SHOWING)
    code, drawn = run_on_terminal(start, {"NO_COLOR": None})
    assert code == 0
    names = dict(re.findall(r"(\x1b\[\d+m)\[(\w+ ?\d?)\]\x1b\[0m ", drawn))
    assert {"launcher", "chief", "worker 0"} <= set(names.values())
