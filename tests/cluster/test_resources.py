"""What memory a process may have."""

import os
import subprocess
import sys

import pytest

from tfps.cluster import resources

SHOW = """
import resource
from tfps.cluster import resources
resource.setrlimit(resource.{kind}, (3 << 30, 3 << 30))
print(resources.memory_limit())
"""


def test_the_machine_has_a_limit():
    assert 0 < resources.memory_limit() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_counts(kind):
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(kind=kind)], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) == min(resources.memory_limit(), 3 << 30)


def test_a_limit_of_its_group_counts(tmp_path, monkeypatch):
    new, old = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(resources, "_GROUP_LIMITS", (str(new), str(old)))
    whole = resources.memory_limit()
    new.write_text("max\n")
    assert resources.memory_limit() == whole
    old.write_text("1000000\n")
    assert resources.memory_limit() == 1_000_000
