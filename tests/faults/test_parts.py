"""Single parts of a run whose storage fails at each of their calls."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.faults import shim

UNDER_SHIM = pathlib.Path(__file__).with_name("under_shim.py")


@pytest.mark.skipif(
    shim.COMPILER is None, reason="there is no C compiler (cc, gcc or clang) to make the shim with"
)
def test_parts_of_a_run_under_the_shim(tmp_path):
    """In a process of its own, which the library must be loaded into as it starts."""
    library = shim.compile_shim(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(UNDER_SHIM)]
    environ = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
