"""`--preflight`: the table as it is printed, and what the chief's own machine must offer."""

import collections
import dataclasses
import re
import shutil
import socket

import pytest
import tensorflow as tf

from configs.smoke import get_config
from tests import peers
from tests.peers import Peer
from tests.training_fixtures import dataset, inputs_of
from tfps.cluster.liveness import Liveness, probe
from tfps.cluster.spec import Cluster
from tfps.coordinator.connector import Connector
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskInfo
from tfps.job_dir.task_name import TaskName
from trainer.chief import preflight


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=100, shards=2).directory


@pytest.fixture(scope="module")
def ps():
    """The address of a TensorFlow server which is ps 0."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    tf.distribute.Server(tf.train.ClusterSpec({"ps": [address]}), job_name="ps", task_index=0)
    return address


def inputs_for(data, job_dir, cluster, ps_memory=None, **train):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment,
        data=dataclasses.replace(experiment.data, train=data),
        train=dataclasses.replace(experiment.train, **train),
    )
    return inputs_of(experiment, job_dir, cluster, ps_memory)


def table(printed):
    return [re.split(r"  +", line) for line in printed.splitlines()]


@pytest.fixture
def free(monkeypatch):
    """Lets a disk have so many bytes left."""

    def free(size):
        usage = collections.namedtuple("usage", "total used free")(1 << 50, 0, size)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    return free


def test_the_table_says_of_every_task_whether_it_can_take_part(
    data, ps, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tfps.cluster.preflight._ASK_SECONDS", 1.0)
    with Peer(peers.stay_silent) as silent:
        refusing = peers.refusing_address()
        cluster = Cluster(("127.0.0.1:1",), (silent.address, refusing), (ps,))
        own = TaskInfo.own(cluster.tasks(), probe(ps, 20).identity.incarnation, 1 << 33)
        own.write(JobDir(tmp_path), TaskName("ps", 0))
        assert not preflight.show_tasks(inputs_for(data, tmp_path, cluster), 0.0)
    assert table(capsys.readouterr().out) == [
        ["task", "address", "reachable", "answers", "TensorFlow", "what to do"],
        ["ps 0", ps, "yes", "yes", tf.__version__, "nothing"],
        ["worker 0", silent.address, "yes", "no", "unknown", Liveness.SILENT.what_to_do],
        ["worker 1", refusing, "no", "no", "unknown", Liveness.REFUSES.what_to_do],
    ]


@pytest.mark.slow
def test_a_ps_that_tells_of_too_little_memory_cannot_take_part(data, ps, tmp_path, capsys):
    cluster = Cluster(("127.0.0.1:1",), (), (ps,))
    needed = preflight.task_memory(inputs_for(data, tmp_path, cluster))[TaskName("ps", 0)]
    incarnation = probe(ps, 20).identity.incarnation
    for memory, ps_memory, is_fit in (
        (needed, None, True),
        (needed - 1, None, False),
        (needed - 1, needed, True),  # the flag says better
    ):
        own = TaskInfo.own(cluster.tasks(), incarnation, memory)
        own.write(JobDir(tmp_path), TaskName("ps", 0))
        inputs = inputs_for(data, tmp_path, cluster, ps_memory)
        assert preflight.show_tasks(inputs, 0.0) == is_fit
        [_, line] = table(capsys.readouterr().out)
        assert is_fit == (line[-1] == "nothing")
        assert is_fit != line[-1].startswith("it needs about 1 GiB of memory, and may have ")
    own.write(JobDir(tmp_path), TaskName("ps", 0))
    connector = Connector(
        cluster,
        JobDir(tmp_path),
        0.1,
        min_workers=0,
        again=False,
        memory={TaskName("ps", 0): needed},
    )
    with pytest.raises(UserError, match=r"not all tasks can be used: ps 0 at .* it needs"):
        connector.connect()


@pytest.mark.quick("True")
@pytest.mark.parametrize("works", [False, True])
def test_a_chief_that_has_too_little_memory_is_refused_before_the_training(
    data, tmp_path, monkeypatch, works
):
    cluster = Cluster(("127.0.0.1:1",), ("127.0.0.1:2",), ("127.0.0.1:3",), chief_works=works)
    inputs = inputs_for(data, tmp_path, cluster)
    needed = preflight.chief_memory(inputs).needed_bytes
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: needed - 1)
    with pytest.raises(UserError, match=r"the chief needs about .* but may have ") as raised:
        preflight.check_machine(inputs, is_serving=True)
    assert "--train.export=none exports none" in str(raised.value)
    assert works == ("--nochief_works leaves that out" in str(raised.value))
    unexported = inputs_for(data, tmp_path, cluster, export="none")
    preflight.check_machine(unexported, is_serving=True)


def test_one_process_that_has_too_little_memory_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: 1 << 30)
    with pytest.raises(UserError, match=r"this process needs about .* several ps would share"):
        preflight.check_machine(inputs_for(data, tmp_path, Cluster()))


def test_a_disk_that_will_be_full_in_the_end_is_warned_of(data, tmp_path, free, caplog):
    inputs = inputs_for(data, tmp_path, Cluster(), keep_checkpoints=7)
    disk = preflight.job_disk(inputs)
    assert (disk.checkpoints, disk.exports) == (8, 3)
    free(disk.all_bytes)
    preflight.check_machine(inputs)
    assert not caplog.messages
    free(disk.all_bytes - 1)
    preflight.check_machine(inputs)
    [message] = caplog.messages
    assert f"--job_dir={tmp_path} keeps up to 8 checkpoints of " in message
    free(sum(disk.at_once.values()) - 1)
    with pytest.raises(UserError, match=r"a checkpoint takes .* and the export takes "):
        preflight.check_machine(inputs)


@pytest.mark.slow
def test_what_a_pass_writes_must_fit(data, tmp_path, free):
    inputs = inputs_for(data, tmp_path, Cluster())
    free(1000)
    preflight.check_machine(inputs, output={"what is predicted": 1000})
    with pytest.raises(UserError, match=r"what is predicted takes 1,001 B, but its disk has 1,000"):
        preflight.check_machine(inputs, output={"what is predicted": 1001})


def test_one_process_has_no_tasks_to_ask(data, tmp_path, capsys):
    inputs = inputs_for(data, tmp_path, Cluster())
    preflight.check_machine(inputs)
    assert preflight.show_tasks(inputs, 0.0)
    assert capsys.readouterr().out == "one process: no tasks to ask\n"


def test_the_chiefs_port_must_be_free(data, ps, tmp_path):
    with Peer(peers.stay_silent) as taken:
        cluster = Cluster((taken.address,), ("127.0.0.1:1",), (ps,))
        inputs = inputs_for(data, tmp_path, cluster)
        with pytest.raises(UserError, match=f"chief cannot serve at {taken.address}: Address"):
            preflight.check_machine(inputs)
    preflight.check_machine(inputs)
