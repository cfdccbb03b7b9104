"""What memory a process may have."""

import os
import subprocess
import sys

import pytest

from tfps.cluster import resources
from tfps.job_dir import cgroup
from tfps.job_dir.task_files import TaskUsage

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


@pytest.fixture(name="groups")
def groups_fixture(tmp_path, monkeypatch):
    """Writes the files of groups, of which this process says that it is in some."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path / "root")
    monkeypatch.setattr(cgroup, "_OWN", tmp_path / "own")

    def write(own, **texts):
        (tmp_path / "own").write_text(own)
        for path, text in texts.items():
            file = tmp_path / "root" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    return write


SLURM = "0::/slurm/job_7/step_0\n"
OLD = "4:memory:/slurm/job_7\n2:cpu,cpuacct:/slurm/job_7\n0::/\n"
OUTSIDE = "0::/docker/7\n"  # where the mounted root is the group itself


@pytest.mark.parametrize(
    ("own", "files", "memory", "cpus"),
    [
        (SLURM, {"slurm/job_7/memory.max": "5000", "slurm/memory.max": "9000"}, [5000, 9000], []),
        (SLURM, {"slurm/job_7/step_0/memory.max": "max", "memory.max": "7000"}, [7000], []),
        (SLURM, {"slurm/job_7/cpu.max": "150000 100000", "cpu.max": "max 100000"}, [], [1.5]),
        (OUTSIDE, {"memory.max": "6000", "cpu.max": "50000 100000"}, [6000], [0.5]),
        (
            OLD,
            {
                "memory/slurm/job_7/memory.limit_in_bytes": "4000",
                "cpu/slurm/job_7/cpu.cfs_quota_us": "200000",
                "cpu/slurm/job_7/cpu.cfs_period_us": "100000",
                "cpu/slurm/cpu.cfs_quota_us": "-1",
                "cpu/slurm/cpu.cfs_period_us": "100000",
            },
            [4000],
            [2.0],
        ),
        ("", {"memory.max": "6000"}, [], []),
    ],
)
def test_limits_of_its_groups_and_those_above_count(groups, own, files, memory, cpus):
    groups(own, **files)
    assert list(cgroup.memory_limits()) == memory
    assert list(cgroup.cpu_limits()) == cpus
    assert resources.memory_limit() == min([resources.memory_limit(), *memory])
    assert TaskUsage.own().cpus == min([len(os.sched_getaffinity(0)), *cpus])
