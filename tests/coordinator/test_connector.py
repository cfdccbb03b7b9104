import pytest

from cloud.local.command import Ports
from tfps.cluster.spec import Cluster
from tfps.coordinator.connector import Connector
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.job_dir.task_name import TaskName

WORKERS = [TaskName("worker", index) for index in range(3)]


@pytest.fixture(name="cluster")
def cluster_fixture():
    """Three workers and a ps, none of which is there."""
    with Ports(5) as ports:
        chief, *workers, ps = [f"127.0.0.1:{port}" for port in ports.numbers]
        yield Cluster((chief,), tuple(workers), (ps,))


@pytest.mark.parametrize(
    ("min_workers", "again", "needed"), [(0, False, 3), (2, False, 2), (0, True, 1)]
)
def test_a_run_needs_every_ps_and_enough_workers(min_workers, again, needed, cluster, tmp_path):
    connector = Connector(cluster, JobDir(tmp_path), 0.1, min_workers, again, memory={})
    with pytest.raises(UserError) as caught:
        connector.connect()
    for task in (TaskName("ps", 0), *WORKERS):
        assert f"{task} at 127.0.0.1:" in str(caught.value)
    assert f"at least {needed} of the 3 workers are needed" in str(caught.value)


def test_so_many_workers_may_be_left_out_as_are_not_needed(cluster, tmp_path):
    connector = Connector(cluster, JobDir(tmp_path), 0.1, min_workers=2, again=False, memory={})
    assert connector.can_do_without([WORKERS[1]])
    assert not connector.can_do_without([WORKERS[0], WORKERS[1]])
    assert connector.arrivals() == []  # none is left out
    connector.left_out = (WORKERS[2],)
    assert not connector.can_do_without([WORKERS[1]])
    assert connector.can_do_without([WORKERS[2]])


def test_one_worker_is_always_needed(cluster, tmp_path):
    connector = Connector(cluster, JobDir(tmp_path), 0.1, min_workers=0, again=False, memory={})
    assert connector.can_do_without([WORKERS[0], WORKERS[2]])
    assert not connector.can_do_without(WORKERS)
