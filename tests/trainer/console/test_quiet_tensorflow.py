"""What TensorFlow says as it loads stays off the terminal, unless it cannot be loaded."""

import os
import subprocess
import sys

import pytest

from tests.job_dir.reports import short_report
from tests.project import ROOT
from tfps.job_dir import JobDir, report

LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # which a process that has loaded it quietly hands on


def python(*arguments, **variables):
    """A program that loads everything itself, as a person's does."""
    environ = {name: value for name, value in os.environ.items() if name != LEVEL}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_summary_is_all_that_is_said(tmp_path):
    report.write(JobDir(tmp_path), short_report(epochs=1, steps=3, seconds=1.0))
    printed = python("-m", "trainer.report", str(tmp_path))
    assert (printed.returncode, printed.stderr) == (0, "")
    assert [line.split()[0] for line in printed.stdout.splitlines()] == [
        *("job", "trained", "speed", "report")
    ]


def test_a_tensorflow_that_cannot_be_loaded_says_why(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\nos.write(2, b'no such instruction\\n')\nraise ImportError('wrong machine')\n"
    )
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    printed = python("-c", "import trainer.console.quiet_tensorflow", PYTHONPATH=paths)
    assert printed.returncode == 1
    assert printed.stderr.startswith("no such instruction\n")
    assert "ImportError: wrong machine" in printed.stderr


@pytest.mark.slow
def test_errors_after_loading_are_exceptions(tmp_path):
    code = (
        "import trainer.console.quiet_tensorflow, tensorflow as tf\n"
        f"tf.io.read_file({str(tmp_path / 'missing')!r})"
    )
    printed = python("-c", code)
    assert printed.returncode == 1
    assert "NotFoundError" in printed.stderr
    assert "No such file or directory" in printed.stderr
