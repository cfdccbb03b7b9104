import os
import subprocess
import sys
import textwrap

from tests.project import ROOT

PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
from trainer.console import terminal
from trainer.chief.interruption import has_restarted, restart_process

begun = has_restarted()
print(os.getpid(), sys.argv[1:], begun, sorted(map(int, os.listdir("/proc/self/fd"))))
print("told by python", file=sys.stderr)
os.write(2, b"told by native code\\n")
if not begun:
    terminal.redirect_noise({log!r})
    os.write(2, b"noise\\n")
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    restart_process()
"""


def test_the_same_program_with_nothing_of_the_old_process(tmp_path):
    log = tmp_path / "log"
    text = textwrap.dedent(PROGRAM).format(root=str(ROOT), log=str(log))
    (tmp_path / "program.py").write_text(text)
    result = subprocess.run(
        [sys.executable, "-u", "-m", "program", "--flag=a b"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={name: x for name, x in os.environ.items() if name != "TFPS_STARTED_ANEW"},
    )
    first, again = result.stdout.splitlines()
    pid = first.split()[0]
    assert first.startswith(f"{pid} ['--flag=a b'] False ")
    assert again == first.replace("False", "True")  # the same process id, and no more files open
    assert result.stderr.splitlines() == ["told by python", "told by native code"] * 2
    assert log.read_text() == "noise\n"
