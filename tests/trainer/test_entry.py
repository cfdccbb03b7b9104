"""`entry.run` in real processes; it loads no TensorFlow, so they are fast."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import ROOT

SCRIPT = """
import sys
import threading
from absl import flags
from tfps.errors import RunError, UserError
from trainer import entry

def main():
    if "tensorflow" in sys.modules:
        return 9
    if flags.FLAGS.thread:
        threading.Thread(target=threading.Event().wait).start()
    if flags.FLAGS.how == "user":
        raise UserError("--how=user is not allowed")
    if flags.FLAGS.how == "run":
        raise RunError("ps 0 is lost")
    if flags.FLAGS.how == "interrupt":
        raise KeyboardInterrupt
    if flags.FLAGS.how == "bug":
        raise ValueError("a bug")
    if flags.FLAGS.how == "long":
        for number in range(100_000):
            print(number)
    return flags.FLAGS.status

flags.DEFINE_string("how", None, "How it ends.", required=True)
flags.DEFINE_bool("thread", False, "Leaves a thread behind.")
flags.DEFINE_integer("status", None, "What main returns.", lower_bound=0)
entry.run(main, has_lasting_threads="--thread" in sys.argv)
"""


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reader_that_has_enough_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = (
        f"{sys.executable} {tmp_path}/script.py --how=long | head -n 2; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("0\n1\n141\n", "")


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--status=5",), 5)])
def test_the_status_of_main(tmp_path: Path, flags: tuple[str, ...], code: int) -> None:
    done = run(tmp_path, "--how=well", *flags)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--how=user",), 2, "error: --how=user is not allowed\n"),
        (("--how=run",), 3, "error: ps 0 is lost\n"),
        (("--how=interrupt",), 130, "error: interrupted\n"),
        (
            ("--how=well", "--nothread=true"),
            2,
            "error: --nothread=true does not take an argument (--help lists the flags)\n",
        ),
        (("--how=well", "rest"), 2, "error: unexpected argument 'rest'; flags begin with --\n"),
    ],
)
def test_an_error_is_one_line(
    tmp_path: Path, flags: tuple[str, ...], code: int, message: str
) -> None:
    done = run(tmp_path, *flags)
    assert (done.returncode, done.stderr, done.stdout) == (code, message, "")


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ((), "--how"),
        (("--how=well", "--status=x"), "--status=x"),
        (("--how=well", "--status=-1"), "status"),
        (("--how=well", "--staus=1"), "Did you mean: status"),
    ],
)
def test_a_bad_flag_is_one_line(tmp_path: Path, flags: tuple[str, ...], part: str) -> None:
    done = run(tmp_path, *flags)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert part in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "--how=bug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("well", 0, ""),
        ("user", 2, "error: --how=user is not allowed"),
        ("run", 3, "error: ps 0 is lost"),
        ("bug", 1, "ValueError: a bug"),
    ],
)
def test_a_thread_that_waits_for_ever_keeps_nobody(tmp_path, how, code, message) -> None:
    done = run(tmp_path, f"--how={how}", "--thread")
    assert done.returncode == code
    assert message in done.stderr


def test_help_lists_the_flags_that_a_program_has_in_modules_of_its_own():
    def flags_of(argument: str, module: str) -> set[str]:
        command = [sys.executable, "-m", "trainer.task", argument]
        text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
        _, found, section = text.partition(f"\n{module}:\n")
        return set(re.findall(r"^  --(\S+):", section.split("\n\n")[0] if found else text, re.M))

    listed = flags_of("--help", "trainer.task")
    for module in ("experiment_flags", "limit_flags", "pass_flags"):
        own = flags_of("--helpfull", f"trainer.flags.{module}")
        assert own
        assert own <= listed
