"""Single parts of a run whose storage fails at each of their calls."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.faults import shim

HERE = pathlib.Path(__file__).parent


def run(name, environ):
    """Runs tests in a process of its own, which must have an environment as it starts."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name)]
    environ = {**os.environ, **environ}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    shim.COMPILER is None, reason="there is no C compiler (cc, gcc or clang) to make the shim with"
)
def test_parts_of_a_run_under_the_shim(tmp_path):
    run("under_shim.py", {"LD_PRELOAD": str(shim.compile_shim(tmp_path))})


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_parts_of_a_run_in_a_bucket():
    """TensorFlow's client tries nothing again, so that each failed request is an error."""
    run("under_bucket.py", {"GCS_RETRY_CONFIG_MAX_RETRIES": "0"})
