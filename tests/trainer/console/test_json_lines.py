"""Log lines for machines, from a real process."""

import json
import logging
import os
import subprocess
import sys

import pytest

from trainer.console.json_lines import JsonFormatter

LABELS = {"role": "worker", "index": "1", "job": "census"}
PROGRAM = """
import logging, os, sys
from trainer import entry
from trainer.console import terminal
from trainer.console.json_lines import JsonFormatter, to_line

def main():
    labels = {"role": "worker", "index": "1", "job": "census"}
    entry.write_errors_with(lambda text: to_line("ERROR", text, labels))
    log = os.environ.get("NATIVE_LOG")
    if log:
        terminal.redirect_noise(log)
    terminal.start_logging("lines", 1.0, JsonFormatter(labels))
    logging.getLogger("tfps.x").warning("a %s", "word")
    os.write(2, b"W0000 00:00:12.5 77 file.cc:31] of native code\\n")
    logging.getLogger("absl").error("another word")
    @END@

entry.run(main, has_lasting_threads=True)
"""


def said(end, tmp_path, **environ):
    """Exit code of a program, the objects on its stderr, and what else is there."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("@END@", end))
    command = [sys.executable, str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=os.environ | environ
    )
    lines = done.stderr.splitlines()
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    return done.returncode, objects, [line for line in lines if not line.startswith("{")]


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("return 0", 0, None),
        ("from tfps.errors import UserError; raise UserError('no such flag')", 2, "no such flag"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("os.abort()", -6, None),
    ],
)
def test_what_python_says_is_json_to_its_end_and_native_lines_stay_text(end, code, last, tmp_path):
    found, objects, others = said(end, tmp_path)
    assert found == code
    own, another, *rest = objects
    assert (own["severity"], own["message"]) == ("WARNING", "a word")
    assert (another["severity"], another["message"]) == ("ERROR", "another word")
    assert others[:1] == ["W0000 00:00:12.5 77 file.cc:31] of native code"]
    assert all(x["logging.googleapis.com/labels"] == LABELS for x in objects)
    assert all(x["time"].endswith("Z") for x in objects)
    if last:
        [error] = rest  # a traceback is one
        assert error["severity"] == "ERROR"
        assert last in error["message"]


def test_native_lines_may_go_elsewhere(tmp_path):
    log = tmp_path / "native.log"
    code, objects, others = said("return 0", tmp_path, NATIVE_LOG=str(log))
    assert (code, [x["message"] for x in objects], others) == (0, ["a word"], [])
    assert "of native code" in log.read_text()


def test_a_record_with_an_exception_is_one_object():
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord(
            "tfps", logging.ERROR, "", 0, "it %s", ("failed",), sys.exc_info()
        )
    found = json.loads(JsonFormatter(LABELS).format(record))
    assert found["severity"] == "ERROR"
    assert found["message"].startswith("it failed\nTraceback")
