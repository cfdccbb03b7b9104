"""Log lines for machines, from a real process."""

import json
import logging
import os
import subprocess
import sys

import pytest

from trainer.console.json_lines import JsonFormatter, wrapped

LABELS = {"role": "worker", "index": "1", "job": "census"}
TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1', "    f()", "ValueError: no"]
PROGRAM = """
import logging, os, sys
from trainer import entry
from trainer.console import terminal
from trainer.console.json_lines import JsonFormatter, JsonStderr

def main():
    labels = {"role": "worker", "index": "1", "job": "census"}
    entry.at_end(JsonStderr(labels).close)
    log = os.environ.get("NATIVE_LOG")
    if log:
        terminal.redirect_noise(log)
    terminal.start_logging("lines", 1.0, JsonFormatter(labels))
    logging.getLogger("tfps.x").warning("a %s", "word")
    os.write(2, b"W0000 00:00:12.5 77 file.cc:31] of native code\\n")
    if os.environ.get("AGAIN") and "DONE" not in os.environ:
        os.environ["DONE"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    @END@

entry.run(main, has_lasting_threads=True)
"""


def said(end, tmp_path, **environ):
    """Exit code of a program, and the objects on its stderr."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("@END@", end))
    command = [sys.executable, str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=os.environ | environ
    )
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("return 0", 0, None),
        ("from tfps.errors import UserError; raise UserError('no such flag')", 2, "no such flag"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("os.abort()", -6, None),
    ],
)
def test_all_that_a_process_says_is_json_to_its_end(end, code, last, tmp_path):
    found, objects = said(end, tmp_path)
    assert found == code
    own, native, *rest = objects
    assert (own["severity"], own["message"]) == ("WARNING", "a word")
    assert (native["severity"], native["message"][-14:]) == ("WARNING", "of native code")
    assert all(x["logging.googleapis.com/labels"] == LABELS for x in objects)
    assert all(x["time"].endswith("Z") for x in objects)
    if last:
        assert rest[-1]["severity"] == "ERROR"
        assert last in rest[-1]["message"]
        assert len(rest) == 1  # a traceback is one


def test_native_lines_may_go_elsewhere(tmp_path):
    log = tmp_path / "native.log"
    code, objects = said("return 0", tmp_path, NATIVE_LOG=str(log))
    assert (code, [x["message"] for x in objects]) == (0, ["a word"])
    assert "of native code" in log.read_text()


def test_a_program_that_begins_again_goes_on_with_its_lines(tmp_path):
    code, objects = said("return 0", tmp_path, AGAIN="1")
    assert code == 0
    assert [x["message"] for x in objects].count("a word") == 2
    assert len(objects) == 4


def test_lines_of_many_kinds():
    ready = '{"severity": "INFO", "message": "ready"}'
    lines = ["plain", "", ready, *TRACE, "F0000 00:00:1.2 3 x] dead", "10:00 x ERROR absl y"]
    found = [json.loads(line) for line in wrapped(lines, LABELS)]
    assert [(x["severity"], x["message"]) for x in found] == [
        ("INFO", "plain"),
        ("INFO", "ready"),
        ("ERROR", "\n".join(TRACE)),
        ("CRITICAL", "F0000 00:00:1.2 3 x] dead"),
        ("ERROR", "10:00 x ERROR absl y"),
    ]
    [cut] = wrapped(TRACE[:2], LABELS)
    assert json.loads(cut)["message"] == "\n".join(TRACE[:2])


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
