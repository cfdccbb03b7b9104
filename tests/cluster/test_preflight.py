import dataclasses
import time

import pytest
import tensorflow as tf

from tests import peers
from tests.answering_servers import AnsweringServers, status
from tests.peers import Peer
from tfps.cluster.liveness import Liveness, probe
from tfps.cluster.preflight import Incarnations, TaskCheck, Wanted, check_tasks
from tfps.cluster.spec import Cluster
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskInfo
from tfps.job_dir.task_name import TaskName

TASKS = {"chief": 1, "worker": 2, "ps": 1}


@pytest.fixture(scope="module")
def address():
    """That of a TensorFlow server which is worker 1."""
    place = peers.free_address()
    spec = tf.train.ClusterSpec({"worker": {1: place}})
    server = tf.distribute.Server(spec, job_name="worker", task_index=1)
    return server.target.removeprefix("grpc://")


@pytest.fixture
def announce(address, tmp_path):
    """Announces worker 1 as another one than it is."""
    incarnation = probe(address, 20).identity.incarnation
    cluster = Cluster(("h:1",), ("h:2", "h:3"), ("h:4",), "worker", 1)

    def announce(**fields):
        own = TaskInfo.own(cluster.tasks(), incarnation, 2 << 30)
        dataclasses.replace(own, **fields).write(JobDir(tmp_path), TaskName("worker", 1))
        return incarnation

    return announce


WORKER = TaskName("worker", 1)
MEMORY = {WORKER: 1 << 30}


def check(address, job_dir, task=WORKER, limit_seconds=0.0):
    [found] = check_tasks({task: address}, Wanted(TASKS, JobDir(job_dir), MEMORY), limit_seconds)
    return found


def test_a_task_that_can_take_part(address, announce, tmp_path):
    announce()
    found = check(address, tmp_path)
    assert found.is_fit
    assert found.what_to_do == ""
    assert found.task_info.tensorflow == tf.__version__


def test_a_task_that_announces_nothing_is_fit_but_unknown(address, announce, tmp_path):
    announce(incarnation=1, tensorflow="1.15.0")  # of a server that is gone
    found = check(address, tmp_path)
    assert found.is_fit
    assert found.task_info is None


def test_another_patch_of_tensorflow_is_fit_another_minor_version_is_not(
    address, announce, tmp_path
):
    major, minor, _ = tf.__version__.split(".", 2)
    announce(tensorflow=f"{major}.{minor}.99")
    assert check(address, tmp_path).is_fit
    announce(tensorflow=f"{major}.{int(minor) - 1}.0")
    found = check(address, tmp_path)
    assert not found.is_fit
    assert str(found) == (
        f"worker 1 at {address}: it runs TensorFlow {major}.{int(minor) - 1}.0, the chief "
        f"{tf.__version__}; install one version for all"
    )


def test_another_cluster_is_not_fit(address, announce, tmp_path):
    announce(tasks={"chief": 1, "worker": 3, "ps": 1})
    assert check(address, tmp_path).mismatch == (
        "its TF_CONFIG has 1 chief, 1 ps, 3 worker, the chief's 1 chief, 1 ps, 2 worker; give all "
        "tasks the same cluster, and --chief_works, which adds a worker, to all or none"
    )


def test_a_task_that_may_have_less_memory_than_it_needs_is_not_fit(address, announce, tmp_path):
    announce(memory_bytes=1 << 30)
    assert check(address, tmp_path).is_fit
    announce(memory_bytes=(1 << 30) - 1)
    found = check(address, tmp_path)
    assert not found.is_fit
    assert str(found) == (
        f"worker 1 at {address}: it needs about 1 GiB of memory, and may have 1,024 MiB; give it "
        "more"
    )


def test_another_task_is_not_fit(address, tmp_path):
    found = check(address, tmp_path, task=TaskName("ps", 0))
    assert str(found).startswith(f"ps 0 at {address}: it says it is worker 1; ")


@pytest.mark.parametrize(
    ("act", "seen"),
    [
        (peers.send_away, Liveness.FOREIGN),
        (peers.stay_silent, Liveness.SILENT),
        (peers.speak_http1, Liveness.FOREIGN),
    ],
)
@pytest.mark.usefixtures("short_limits")
def test_what_is_no_server_is_not_fit(act, seen, tmp_path):
    with Peer(act) as peer:
        found = check(peer.address, tmp_path)
    assert found.liveness is seen
    assert found.what_to_do == seen.what_to_do
    assert str(found) == f"worker 1 at {peer.address}: {seen.value} ({seen.what_to_do})"


@pytest.fixture
def short_limits(monkeypatch):
    monkeypatch.setattr("tfps.cluster.preflight._ASK_SECONDS", 0.3)


@pytest.mark.usefixtures("short_limits")
def test_tasks_are_waited_for_at_the_same_time(address, announce, tmp_path):
    announce()
    refusing = {TaskName("ps", number): peers.refusing_address() for number in range(40)}
    workers = {TaskName("worker", 0): peers.refusing_address(), TaskName("worker", 1): address}
    addresses = {**workers, **refusing}
    began = time.monotonic()
    found = check_tasks(addresses, Wanted(TASKS, JobDir(tmp_path), {}), limit_seconds=1.0)
    assert 1.0 <= time.monotonic() - began < 30.0
    assert [each.task for each in found] == list(addresses)
    assert [each.is_fit for each in found] == [False, True, *[False] * len(refusing)]


def test_another_server_in_a_tasks_place_is_seen():
    ps = TaskName("ps", 3)
    with AnsweringServers(response=status("ps", 3, 77)) as server:
        checks = [
            TaskCheck(ps, server.address, Liveness.ANSWERS, incarnation=77),
            TaskCheck(TaskName("worker", 0), server.address, Liveness.ANSWERS, incarnation=78),
            TaskCheck(TaskName("ps", 4), peers.refusing_address(), Liveness.SILENT),
        ]
        servers = Incarnations(checks, "ps")
        assert servers.replaced() == []
    assert servers.replaced() == []  # nobody answers: that is for the monitor to see
    with AnsweringServers([server.address], status("ps", 3, 78)):
        assert servers.replaced() == [ps]


def test_where_there_is_no_task_none_is_replaced():
    assert Incarnations([], "ps").replaced() == []
