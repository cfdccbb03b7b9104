"""A value that the chief asks for leaves nothing behind."""

import json
import subprocess
import sys

import pytest

from tests.project import ROOT


@pytest.mark.slow
def test_a_ps_keeps_nothing_of_what_is_fetched():
    """TensorFlow's own `numpy()` leaves 3 KB; when it no longer does, `fetched` can go."""
    program = [sys.executable, "-m", "tests.cluster.heap_of_ps"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    kept = json.loads(done.stdout)
    assert kept["by_numpy"] > 2000
    assert kept["fetched"] < 500
