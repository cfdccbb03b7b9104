"""A chief of a cluster of servers in its own process; prints what it sees of TensorFlow as JSON."""

import os

os.environ["GRPC_FAIL_FAST"] = "use_caller"
# gs:// through a proxy that refuses, without a search for credentials.
os.environ |= {"https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1,localhost"}
os.environ |= {"NO_GCE_CHECK": "true", "GCS_RETRY_CONFIG_MAX_RETRIES": "1"}

import faulthandler
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tfps.cluster import failures, sockets
from tfps.cluster.preflight import Incarnations
from tfps.coordinator import connector
from tfps.coordinator.executor import ClusterExecutor, FailureLog
from tfps.store.model_state import WorkerCopy
from tfps.store.partitioned_variable import save_now

PS = "/job:ps/replica:0/task:0/device:CPU:0"


def main() -> dict[str, Any]:
    """Everything that it sees."""
    seen: dict[str, Any] = {"storage": _storage()}
    tf.config.threading.set_inter_op_parallelism_threads(5)
    before = tf.Variable(1.0)  # made before this process is a chief
    addresses = {"worker": [_address()], "ps": [_address()], "chief": [_address()]}
    spec = tf.train.ClusterSpec(addresses)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=0) for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    seen["sent"] = _sent_to_tasks()
    connector.set_up(60)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with tf.device(PS):
        variable = tf.Variable(0.0)
    seen["device"] = variable.device
    connector.leave_layouts_alone()
    print("what goes before is not the cluster's", file=sys.stderr, flush=True)
    seen |= _closures(coordinator, variable)
    seen["saved"] = _saved()
    [ps] = addresses["ps"]
    seen["connections"] = sum(1 for _ in sockets.Connections([ps]).open_now())
    seen["lost"] = _lost(ps)
    seen["retried"] = _retried(coordinator, before)
    assert servers
    return seen


def _sent_to_tasks() -> dict[str, Any]:
    """What TensorFlow is told of this chief's settings when it connects to its tasks."""
    sent: dict[str, Any] = {}
    method = context.Context.set_server_def

    def noted(self: context.Context, server_def: Any, keep_alive_secs: int) -> None:
        settings = server_def.default_session_config
        sent["spins"] = not settings.experimental.disable_thread_spinning
        sent["inter_op_threads"] = settings.inter_op_parallelism_threads
        sent["keep_alive"] = keep_alive_secs
        method(self, server_def, keep_alive_secs)

    context.Context.set_server_def = noted
    return sent


def _closures(
    coordinator: tf.distribute.coordinator.ClusterCoordinator, variable: tf.Variable
) -> dict[str, Any]:
    queue, begun = _queue(), _queue()
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

    @tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
    def fail(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [2, 2])

    @tf.function(autograph=False)
    def wait() -> tf.Tensor:
        with tf.device(PS):
            begun.enqueue(tf.constant(1, tf.int64))
            return queue.dequeue()

    seen: dict[str, Any] = {
        "index": int(coordinator.schedule(index).fetch()),
        "loop": float(coordinator.schedule(count).fetch()),
    }
    first = coordinator.schedule(wait)  # the others are in the queue before one fails
    scheduled = [coordinator.schedule(fail, args=(tf.zeros([3]),))]
    scheduled += [coordinator.schedule(wait) for _ in range(2)]
    queue.enqueue(tf.constant(1, tf.int64))
    # One of the two has begun when `join` cancels them, and its call is there to be cancelled:
    # TensorFlow loses a cancellation that comes as a call is made, and `join` waits for ever.
    while begun.size() < 2:  # asked, as a `dequeue` that waits holds one of few threads at its ps
        time.sleep(0.05)
    seen["error"] = _kind(coordinator.join)
    assert first.fetch() == 1
    seen["scheduled"] = [_kind(each.fetch) for each in scheduled]
    # The one that began goes on at its worker, in a thread of those that worker and ps share here.
    queue.enqueue(tf.constant(1, tf.int64))
    seven = tf.function(lambda: tf.constant(7))
    failed = coordinator.schedule(fail, args=(tf.zeros([3]),))
    seen["failed"] = _kind(failed.fetch)
    executor = _executor(coordinator)
    # A result has its error a moment before the coordinator has.
    while not (late := _kind(executor.schedule(seven, ()).result)):
        pass
    seen["late"] = late
    seen["after"] = int(coordinator.schedule(seven).fetch())
    seen["kept"] = _kept(coordinator, variable)
    return seen


def _executor(coordinator: tf.distribute.coordinator.ClusterCoordinator) -> ClusterExecutor:
    return ClusterExecutor(coordinator, [0], Incarnations([], "ps"), ps=1)


def _kept(
    coordinator: tf.distribute.coordinator.ClusterCoordinator, variable: tf.Variable
) -> list[float]:
    """How often the values were fetched that each of three closures on a worker finds there."""
    variable.assign(0.0)

    def fetch() -> tf.Tensor:
        with tf.device(PS):
            return variable.assign_add(1.0).read_value()[tf.newaxis]

    copy = WorkerCopy(fetch, 1)
    closures = [tf.function(lambda n=n: copy.value() + 0.0 * n, autograph=False) for n in range(2)]
    found = [coordinator.schedule(each).fetch() for each in [*closures, closures[0]]]
    return [float(each[0]) for each in found]


def _saved() -> list[Any]:
    """Whether files are there when `save_now` returns, and what it says when none can be."""
    with tempfile.TemporaryDirectory() as directory, tf.device(PS):
        values, seen = tf.ones([20_000_000]), []
        for number in range(3):
            save_now(f"{directory}/{number}", ["values"], [""], [values])
            seen.append(os.path.exists(f"{directory}/{number}.index"))
        no_directory = f"{directory}/0.index/values"
        seen.append(_kind(lambda: save_now(no_directory, ["values"], [""], [values])))
    return seen


def _lost(address: str) -> list[str]:
    """What a call says that waits when its connection is shut."""
    queue = _queue()
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
    for _, connection in sockets.Connections([address]).open_now():
        connection.shutdown(socket.SHUT_RDWR)
    waiting.join(60)
    return said


def _retried(
    coordinator: tf.distribute.coordinator.ClusterCoordinator, variable: tf.Variable
) -> list[Any]:
    """What the log says of a closure that no worker can run: the worker and the first line."""
    log = FailureLog()
    result = coordinator.schedule(tf.function(lambda: variable + 1.0))
    deadline = time.monotonic() + 60
    while not (failed := log.take()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert result  # which is never there
    return [[worker, failures.first_line(error)] for worker, error in failed[:1]]


def _queue() -> tf.queue.FIFOQueue:
    with tf.device(PS):
        return tf.queue.FIFOQueue(10, [tf.int64], shapes=[[]])


def _kind(call: Callable[[], Any]) -> str:
    """The kind of the error that a call ends in."""
    try:
        call()
    except tf.errors.OpError as error:
        return type(error).__name__
    return ""


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
    faulthandler.dump_traceback_later(180, exit=True)  # before the test that waits gives up
    print(json.dumps(main()), flush=True)
    os._exit(0)
