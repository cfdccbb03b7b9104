import contextlib
import pathlib
import subprocess
import sys

from tests import peers
from tfps.cluster.liveness import Liveness, ServerIdentity
from tfps.cluster.preflight import Incarnations, TaskCheck
from tfps.job_dir.task_name import TaskName

SERVER = """
import sys
import tensorflow as tf
address = sys.argv[1]
tf.distribute.Server(tf.train.ClusterSpec({"ps": {3: address}}), job_name="ps", task_index=3)
print("there", flush=True)
sys.stdin.read()
"""
PS = TaskName("ps", 3)


@contextlib.contextmanager
def server(address):
    """A ps in a process of its own."""
    command = [sys.executable, "-c", SERVER, address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, cwd=pathlib.Path.home()) as process:
        try:
            assert process.stdout.readline() == b"there\n"
            yield
        finally:
            process.kill()


def test_another_server_in_a_tasks_place_is_told_and_none_is_not():
    address = peers.free_address()
    with server(address):
        number = ServerIdentity.ask(address, 20).incarnation
        checks = [
            TaskCheck(PS, address, Liveness.ANSWERS, incarnation=number),
            TaskCheck(TaskName("worker", 0), address, Liveness.ANSWERS, incarnation=number + 1),
            TaskCheck(TaskName("ps", 4), address, Liveness.SILENT),
        ]
        servers = Incarnations(checks, "ps")
        assert servers.replaced() == []
    assert servers.replaced() == []  # nobody answers: that is for the monitor to tell
    with server(address):
        assert servers.replaced() == [PS]


def test_where_there_is_no_task_none_is_replaced():
    assert Incarnations.of([], "ps").replaced() == []
