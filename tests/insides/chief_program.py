"""A chief of a cluster of servers in its own process; prints what it sees of TensorFlow as JSON."""

import os

os.environ["GRPC_FAIL_FAST"] = "use_caller"
# gs:// through a proxy that refuses, without a search for credentials.
os.environ |= {"https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1,localhost"}
os.environ |= {"NO_GCE_CHECK": "true", "GCS_RETRY_CONFIG_MAX_RETRIES": "1"}

import json
import socket
import threading
from typing import Any

import tensorflow as tf

from tfps import connections, failures, remote_contexts

PS = "/job:ps/replica:0/task:0/device:CPU:0"


def main() -> dict[str, Any]:
    """Everything that it sees."""
    seen: dict[str, Any] = {"storage": _storage()}
    addresses = {"worker": [_address()], "ps": [_address()], "chief": [_address()]}
    spec = tf.train.ClusterSpec(addresses)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=0) for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    remote_contexts.let_expire(60)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with tf.device(PS):
        variable = tf.Variable(0.0)
        queue = tf.queue.FIFOQueue(10, [tf.int64], shapes=[[]])
    seen["device"] = variable.device
    seen |= _closures(coordinator, variable)
    [ps] = addresses["ps"]
    seen["connections"] = sum(1 for _ in connections.connections_to([ps]))
    seen["lost"] = _lost(ps, queue)
    assert servers
    return seen


def _closures(
    coordinator: tf.distribute.coordinator.ClusterCoordinator, variable: tf.Variable
) -> dict[str, Any]:
    index = tf.function(
        lambda: tf.distribute.coordinator.experimental_get_current_worker_index() + 0
    )

    @tf.function(autograph=False)
    def count() -> tf.Tensor:
        def add(k: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(PS):
                variable.assign_add(1.0)
            return (k + 1,)

        tf.while_loop(lambda k: k < 3, add, [0])
        with tf.device(PS):
            return variable.read_value()

    @tf.function(autograph=False)
    def fail(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [2, 2])

    seen: dict[str, Any] = {
        "index": int(coordinator.schedule(index).fetch()),
        "loop": float(coordinator.schedule(count).fetch()),
    }
    failing = coordinator.schedule(fail, args=(tf.zeros([3]),))
    kinds = []
    for _ in range(2):
        try:
            kinds.append(coordinator.schedule(index))
        except tf.errors.OpError as error:  # it has failed already
            kinds.append(error)
    try:
        coordinator.join()
        seen["error"] = None
    except tf.errors.OpError as error:
        seen["error"] = type(error).__name__
    seen["waited"] = [type(each).__name__ for each in kinds]
    del failing
    seven = tf.function(lambda: tf.constant(7))
    seen["after"] = int(coordinator.schedule(seven).fetch())
    return seen


def _lost(address: str, queue: tf.queue.FIFOQueue) -> list[str]:
    """What a call says that waits when its connection is shut, and one that comes then."""
    said = []

    @tf.function(autograph=False)
    def wait() -> tf.Tensor:
        with tf.device(PS):
            return queue.dequeue()

    def call() -> None:
        try:
            wait()
        except tf.errors.OpError as error:
            said.append(str(failures.lost_ps_behind(error) or error))

    waiting = threading.Thread(target=call)
    waiting.start()
    waiting.join(3)
    for _, connection in connections.connections_to([address]):
        connection.shutdown(socket.SHUT_RDWR)
    waiting.join(60)
    return said


def _storage() -> list[str]:
    try:
        tf.io.gfile.GFile("gs://no-such-bucket-of-anybody/shard", "rb").read(1)
    except tf.errors.OpError as error:
        return [type(error).__name__, str(error)]
    return ["", ""]


def _address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"localhost:{held.getsockname()[1]}"


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
    os._exit(0)
