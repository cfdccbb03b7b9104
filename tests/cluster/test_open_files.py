import resource
import subprocess
import sys

import pytest

from tfps.cluster import resources
from tfps.cluster.spec import Cluster
from tfps.errors import UserError

WORKERS = tuple(f"w{i}:1" for i in range(1000))
PS = tuple(f"p{i}:1" for i in range(100))


@pytest.fixture
def limits(monkeypatch):
    """Limits of a process that are as a test says."""
    found = {}
    monkeypatch.setattr(resource, "getrlimit", lambda which: found["limit"])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: found.update(limit=limit))
    return found


def task(job):
    return Cluster(("c:1",), WORKERS, PS, (), job, 0)


def test_the_limit_of_a_process_is_raised_as_far_as_it_can_be():
    code = (
        "import resource\n"
        "from tfps.cluster.spec import Cluster\nfrom tfps.cluster import resources\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1500))\n"
        "resources.allow_files_of_task(Cluster())\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1500", "1500"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 524288), (524288, 524288)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((1024, 1 << 30), (1 << 20, 1 << 30)),
        ((1 << 21, 1 << 30), (1 << 21, 1 << 30)),
    ],
)
def test_a_limit_that_helps_nobody_is_not_asked_for(limits, before, after):
    limits["limit"] = before
    resources.allow_files_of_task(task("chief"))
    assert limits["limit"] == after


@pytest.mark.parametrize("job", ["chief", "ps"])
def test_a_limit_that_is_too_low_is_refused_with_its_mend(limits, job):
    limits["limit"] = (1024, 2048)
    with pytest.raises(UserError, match=r"needs up to 3815 .* may have 2048: .*`ulimit -Hn 3815`"):
        resources.allow_files_of_task(task(job))
    assert limits["limit"] == (1024, 2048)


def test_a_worker_needs_no_connections_to_workers(limits):
    limits["limit"] = (512, 1024)
    resources.allow_files_of_task(task("worker"))
    with pytest.raises(UserError, match="worker 0 of 1000 needs up to 3515"):
        resources.allow_files_of_task(Cluster(("c:1",), WORKERS, (), (), "worker", 0))


def test_the_launcher_needs_some_for_each_task(limits):
    limits["limit"] = (1024, 2048)
    resources.allow_files_of_launcher(600)
    with pytest.raises(UserError, match="the launcher of 700 tasks needs up to 2228"):
        resources.allow_files_of_launcher(700)
