"""`--preflight`: the table as it is printed, and what the chief's own machine must offer."""

import dataclasses
import re
import socket

import pytest
import tensorflow as tf

from configs.smoke import get_config
from tests import peers
from tests.peers import Peer
from tests.training_fixtures import dataset
from tfps.cluster.identity import ServerIdentity
from tfps.cluster.liveness import Liveness
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.job_dir.task_info import TaskInfo
from tfps.job_dir.task_name import TaskName
from trainer.chief import preflight
from trainer.chief.run_inputs import RunInputs


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


def inputs_for(data, job_dir, cluster):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    return RunInputs.check(experiment, cluster, str(job_dir), None)


def test_the_table_says_of_every_task_whether_it_can_take_part(
    data, ps, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tfps.cluster.preflight._ASK_SECONDS", 1.0)
    with Peer(peers.stay_silent) as silent:
        refusing = peers.refusing_address()
        cluster = Cluster(("127.0.0.1:1",), (silent.address, refusing), (ps,))
        own = TaskInfo.own(cluster.tasks(), ServerIdentity.ask(ps, 20).incarnation)
        own.write(str(tmp_path), TaskName("ps", 0))
        assert not preflight.show_tasks(inputs_for(data, tmp_path, cluster), 0.0)
    table = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert table == [
        ["task", "address", "reachable", "answers", "TensorFlow", "what to do"],
        ["ps 0", ps, "yes", "yes", tf.__version__, "nothing"],
        ["worker 0", silent.address, "yes", "no", "unknown", Liveness.SILENT.what_to_do],
        ["worker 1", refusing, "no", "no", "unknown", Liveness.REFUSES.what_to_do],
    ]


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
