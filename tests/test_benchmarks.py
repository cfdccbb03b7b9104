"""The benchmarks start, and refuse what they cannot use; they are too long to run here."""

import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def run(script: str, *args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", ["against_tutorial.py", "tutorial.py"])
def test_a_script_lists_its_flags(script):
    result = run(script, "--help")
    assert result.returncode == 0
    assert "--workers" in result.stdout


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--runs=0", "--runs=0 must be at least 1"),
        ("--seconds=3", "--seconds=3.0 must be at least 15.0"),
        ("--peer_python=no-such-python", "--peer_python=no-such-python: no such program"),
    ],
)
def test_a_bad_flag_is_one_message(tmp_path, flag, message):
    result = run("against_tutorial.py", f"--output={tmp_path}/out.json", flag)
    assert (result.returncode, result.stderr) == (2, f"error: {message}\n")


def test_an_output_in_no_directory(tmp_path):
    result = run("against_tutorial.py", f"--output={tmp_path}/none/out.json")
    assert result.returncode == 2
    assert "there is no directory" in result.stderr
