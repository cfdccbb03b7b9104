import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from cloud.local.command import Ports
from tfps.cluster.spec import Cluster
from tfps.coordinator.connector import Connector
from tfps.errors import LostPsError, UserError
from tfps.job_dir import JobDir
from tfps.job_dir.task_name import TaskName

WORKERS = [TaskName("worker", index) for index in range(3)]


@pytest.fixture(name="cluster")
def cluster_fixture():
    """Three workers and a ps, none of which is there."""
    with Ports(5) as ports:
        chief, *workers, ps = [f"127.0.0.1:{port}" for port in ports.numbers]
        yield Cluster((chief,), tuple(workers), (ps,))


@pytest.mark.parametrize(("min_workers", "needed"), [(0, 3), (2, 2)])
def test_a_run_needs_every_ps_and_enough_workers(min_workers, needed, cluster, tmp_path):
    connector = Connector(cluster, JobDir(tmp_path), 0.1, min_workers, again=False, memory={})
    with pytest.raises(UserError) as caught:
        connector.connect()
    for task in (TaskName("ps", 0), *WORKERS):
        assert f"{task} at 127.0.0.1:" in str(caught.value)
    assert f"at least {needed} of the 3 workers are needed" in str(caught.value)


def test_a_ps_that_is_away_when_a_run_continues_is_a_lost_one(cluster, tmp_path):
    connector = Connector(cluster, JobDir(tmp_path), 0.1, 0, again=True, memory={})
    with pytest.raises(LostPsError, match=r"^ps 0 at 127\.0\.0\.1:") as caught:
        connector.connect()
    assert "worker" not in str(caught.value)


def test_a_run_that_continues_waits_for_a_worker(cluster, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("tfps.coordinator.connector._AGAIN_SECONDS", 0.1)
    serve(cluster, "ps", 0)
    connector = Connector(cluster, JobDir(tmp_path), 0.5, 0, again=True, memory={})
    with pytest.raises(UserError, match=r"at least 1 of the 3 workers are needed"):
        connector._workers(connector._check_again())
    connector = Connector(cluster, JobDir(tmp_path), 60.0, 0, again=True, memory={})
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(connector._check_again)
        while not [text for text in caplog.messages if text.startswith("waiting up to 60 s")]:
            assert not found.done()
            time.sleep(0.01)
        serve(cluster, "worker", 1)
        assert connector._workers(found.result()) == [1]
    [said] = [text for text in caplog.messages if text.startswith("waiting up to 60 s")]
    assert "for at least 1 of the 3 workers: worker 0 at 127.0.0.1:" in said


def serve(cluster: Cluster, job: str, index: int) -> None:
    """Starts the server of a task in this process, which ends it."""
    address = cluster.spec()[job][index]
    spec = tf.train.ClusterSpec({job: {index: address}})
    tf.distribute.Server(spec, job_name=job, task_index=index)


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
