"""What a config finds at `tfps` itself."""

import subprocess
import sys

import pytest

import tfps
from tests.project import ROOT

# Says which libraries are loaded once each of the names was asked for, one process for all.
PROGRAM = """
import sys, tfps
def tell(name):
    print(name, *sorted({"tensorflow", "keras", "numpy"} & set(sys.modules)))
tell("tfps")
for name in ("Sync", "Feature"):
    getattr(tfps, name)
    tell(name)
"""


@pytest.mark.parametrize("name", tfps.__all__)
def test_every_name_is_the_class_of_that_name(name):
    assert getattr(tfps, name).__name__ == name
    assert name in dir(tfps)


def test_another_name_is_refused():
    with pytest.raises(AttributeError, match="module 'tfps' has no attribute 'Tusk'"):
        tfps.Tusk  # noqa: B018 - asking is what is tested


def test_nothing_is_loaded_before_it_is_asked_for():
    command = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = dict(line.partition(" ")[::2] for line in told.splitlines())
    assert loaded["tfps"] == loaded["Sync"] == ""
    assert "keras" not in loaded["Feature"]
