"""What a chief held on its tasks is freed when it is gone."""

import inspect
import json
import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest
from cluster_process import Program
from held_on_ps import EXPIRE_SECONDS
from tensorflow.python.eager import context

from cloud.local.command import Ports

TABLE_BYTES = 200e6
PROGRAM = pathlib.Path(__file__).parent / "held_on_ps.py"
SERVE = """
import sys, tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
server = tf.distribute.Server(
    resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc"
)
print("serves", flush=True)
server.join()
"""


def test_tensorflow_still_has_what_is_set() -> None:
    """No public function takes how long a task holds what a chief has left there."""
    for name in ("set_server_def", "update_server_def"):
        method = getattr(context.Context, name)
        assert inspect.signature(method).parameters["keep_alive_secs"].default == 600


def test_a_chief_finds_nothing_in_its_queues_that_another_has_left() -> None:
    """As it does in those that TensorFlow names itself."""
    with Ports(3) as ports:
        addresses = [[f"127.0.0.1:{port}"] for port in ports.numbers]
    cluster = dict(zip(("chief", "worker", "ps"), addresses, strict=True))

    def start(job: str) -> Program:
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
        return Program(module="tests.integration.queues_on_ps", environ={"TF_CONFIG": config})

    with start("ps") as ps, start("worker") as worker:
        ps.see("serves")
        worker.see("serves")
        for left in (0, 1):
            with start("chief") as chief:
                chief.see(f"found {left} 0")
                assert chief.finish() == 0, chief.text


@pytest.mark.slow
def test_a_ps_holds_the_parameters_of_one_chief_only() -> None:
    with Ports(3) as ports:
        chief, worker, ps = [[f"127.0.0.1:{port}"] for port in ports.numbers]
    cluster = {"chief": chief, "worker": worker, "ps": ps}

    def start(job: str, *argv: str) -> subprocess.Popen[str]:
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
        environ = {**os.environ, "TF_CONFIG": config}
        return subprocess.Popen(
            [sys.executable, *argv], env=environ, stdout=subprocess.PIPE, text=True
        )

    servers = [start(job, "-c", SERVE) for job in ("worker", "ps")]
    try:
        for server in servers:
            assert server.stdout
            assert server.stdout.readline() == "serves\n"
        held = []
        for _ in range(3):
            with start("chief", str(PROGRAM)) as program:
                assert program.communicate(timeout=60)[0] == "200.0\n"
            held.append(psutil.Process(servers[1].pid).memory_info().rss)
            time.sleep(2 * EXPIRE_SECONDS)
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert max(held) - held[0] < TABLE_BYTES / 4
