"""A chief whose worker and ps both begin again; prints the error of a closure as JSON."""

import os

os.environ["GRPC_FAIL_FAST"] = "use_caller"

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import tensorflow as tf

from cloud.local.command import Ports
from tfps.cluster import failures

SERVER = """
import json, os, sys
os.environ["GRPC_FAIL_FAST"] = "use_caller"
import tensorflow as tf
spec = tf.train.ClusterSpec(json.loads(sys.argv[1]))
server = tf.distribute.Server(spec, job_name=sys.argv[2], task_index=0)
print("serves", flush=True)
server.join()
"""


@contextlib.contextmanager
def serving(cluster: dict[str, list[str]], job: str) -> Iterator[None]:
    """A server in a process of its own, which is killed in the end."""
    command = [sys.executable, "-c", SERVER, json.dumps(cluster), job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "serves\n"
        try:
            yield
        finally:
            process.kill()


def main() -> dict[str, str]:
    """What a closure says that reads a variable of a ps which began again."""
    with Ports(3) as ports:
        at = [f"127.0.0.1:{port}" for port in ports.numbers]
        return outcome({"worker": at[:1], "ps": at[1:2], "chief": at[2:]})


def outcome(cluster: dict[str, list[str]]) -> dict[str, str]:
    """Reads before and after both have begun again."""
    with serving(cluster, "worker"), serving(cluster, "ps"):
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        ps = "/job:ps/replica:0/task:0/device:CPU:0"
        with tf.device(ps):
            variable = tf.Variable(1.0)

        @tf.function(autograph=False)
        def read() -> tf.Tensor:
            with tf.device(ps):
                return variable.read_value()

        assert coordinator.schedule(read).fetch() == 1.0
    with serving(cluster, "worker"), serving(cluster, "ps"):
        for _ in range(20):  # the first may still fail at connections of before
            try:
                coordinator.schedule(read).fetch()
                coordinator.join()
            except tf.errors.InvalidArgumentError as error:
                lost = failures.lost_ps_behind(error)
                found = {"kind": type(error).__name__, "lost": str(lost or error)}
                return found | {"own": own_read(variable)}
            except tf.errors.OpError as error:
                print(type(error).__name__, error, file=sys.stderr, flush=True)
    return {"kind": "", "lost": "", "own": ""}


def own_read(variable: tf.Variable) -> str:
    """What the chief's own read says then."""
    try:
        return str(variable.numpy())
    except tf.errors.InvalidArgumentError as error:
        return str(failures.lost_ps_behind(error) or error)


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
    os._exit(0)
