"""What tfps relies on in TensorFlow's servers and coordinator; docs/tensorflow_insides.md."""

import inspect
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import grpc
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from cloud.local.command import Ports
from tests.project import ROOT
from tfps.cluster.liveness import Liveness, probe

LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")


@pytest.fixture(name="server", scope="module")
def server_fixture() -> tf.distribute.Server:
    config = tf.compat.v1.ConfigProto()
    config.experimental.disable_thread_spinning = True
    return tf.distribute.Server.create_local_server(config)


@pytest.fixture(name="seen", scope="module")
def seen_fixture() -> dict[str, Any]:
    """What a chief saw of a cluster of its own; see `chief_program`."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.insides.chief_program"],
        cwd=ROOT,
        # TensorFlow tells what its graphs go through.
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "meta_optimizer=1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    told = ended.stderr.partition("what goes before is not the cluster's")[2]
    seen["graphs"] = re.findall(r"meta_optimizer\.cc:\d+\] (Starting|\w+(?=[:{]))", told)
    return seen


def test_what_a_ps_saves_is_there_when_it_is_said_to_be(seen: dict[str, Any]) -> None:
    """An operation that is called by itself returns when the ps knows of it; `save_now` waits."""
    *written, failure = seen["saved"]
    assert written == [True] * 3
    assert failure in ("FailedPreconditionError", "NotFoundError")


def test_target_of_a_server(server: tf.distribute.Server) -> None:
    assert server.target.startswith("grpc://localhost:")


def test_answer_to_get_status(server: tf.distribute.Server) -> None:
    """The bytes of `WorkerService/GetStatus`: first device's name and incarnation."""
    seen = probe(server.target.removeprefix("grpc://"), 60)
    assert seen.liveness is Liveness.ANSWERS
    assert seen.identity is not None
    assert str(seen.identity.task) == "localhost 0"
    assert seen.identity.incarnation > 0


def test_text_of_a_request_that_cannot_be_read(server: tf.distribute.Server) -> None:
    """Bytes that are no message: the server runs nothing, and says so."""
    with grpc.insecure_channel(server.target.removeprefix("grpc://")) as channel:
        call = channel.unary_unary("/tensorflow.eager.EagerService/RunComponentFunction")
        with pytest.raises(grpc.RpcError) as error:
            call(b"\xff\xff", timeout=60)
    assert error.value.code() is grpc.StatusCode.INTERNAL
    assert error.value.details() == "Unable to parse request"


@pytest.mark.parametrize("name", ["set_server_def", "update_server_def"])
def test_keep_alive_of_remote_contexts(name: str) -> None:
    """A private argument; no public function takes how long a task holds what a chief left."""
    parameters = inspect.signature(getattr(context.Context, name)).parameters
    assert parameters["keep_alive_secs"].default == 600
    assert isinstance(context.context(), context.Context)


def test_settings_of_remote_contexts(seen: dict[str, Any]) -> None:
    """The chief's settings travel to its tasks as it connects, and can be told before."""
    assert seen["sent"] == {"spins": False, "inter_op_threads": 5, "keep_alive": 60}


def test_settings_of_graphs(seen: dict[str, Any]) -> None:
    """A task goes through a graph once, as it is, and looks for neither memory nor layouts."""
    kinds = set(seen["graphs"])
    assert {"Starting", "constant_folding"} <= kinds
    assert not kinds & {"memory_optimizer", "layout", "tfg_optimizer"}
    assert seen["graphs"].count("constant_folding") <= seen["graphs"].count("Starting")


@pytest.mark.parametrize(
    "name",
    [
        "GRPC_FAIL_FAST",
        "TF_CPP_MIN_LOG_LEVEL",
        "CUDA_VISIBLE_DEVICES",
        "GCS_READ_CACHE_BLOCK_SIZE_MB",
        "GCS_READ_CACHE_MAX_SIZE_MB",
        "GCS_REQUEST_CONNECTION_TIMEOUT_SECS",
        "GCS_REQUEST_IDLE_TIMEOUT_SECS",
        "GCS_METADATA_REQUEST_TIMEOUT_SECS",
        "GCS_READ_REQUEST_TIMEOUT_SECS",
        "GCS_WRITE_REQUEST_TIMEOUT_SECS",
        "GCS_RETRY_CONFIG_MAX_RETRIES",
        "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US",
        "GCS_RETRY_CONFIG_MAX_DELAY_TIME_US",
    ],
)
def test_variables_of_the_environment(name: str) -> None:
    """TensorFlow's libraries still hold the names: an unknown variable is ignored in silence."""
    directory = pathlib.Path(tf.__file__).parent
    for library in LIBRARIES:
        with (
            (directory / library).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(name.encode()) >= 0:
                return
    raise AssertionError(f"no library of TensorFlow holds {name}")


def test_text_of_storage_that_gave_up(seen: dict[str, Any]) -> None:
    """gs:// without an answer, over a proxy that refuses."""
    kind, text = seen["storage"]
    assert kind in ("UnavailableError", "AbortedError")
    assert "retry attempts failed" in text


def test_index_of_the_worker_in_a_closure(seen: dict[str, Any]) -> None:
    assert seen["index"] == 0


def test_error_of_a_closure(seen: dict[str, Any]) -> None:
    """The next `join` raises it, closures that waited are cancelled, and others can follow."""
    assert seen["error"] == "InvalidArgumentError"
    assert seen["scheduled"] == ["InvalidArgumentError", "CancelledError", "CancelledError"]
    assert seen["failed"] == seen["late"] == "InvalidArgumentError"
    assert seen["after"] == 7


def test_error_of_a_closure_that_is_counted_twice() -> None:
    source = inspect.getsource(inspect.getmodule(tf.distribute.coordinator.ClusterCoordinator))
    assert source.count('AssertionError("There is no inflight closures to ') == 3


def test_a_workers_variable_is_found_by_its_name(seen: dict[str, Any]) -> None:
    """By later closures, also of another function, as long as the chief is connected."""
    assert seen["kept"] == [1.0, 1.0, 1.0]


def test_log_of_a_closure_that_is_run_again(seen: dict[str, Any]) -> None:
    """A closure whose variable is out of its worker's reach; no result tells of the error."""
    line = "/job:localhost/replica:0/task:0/device:CPU:0 unknown device"
    assert seen["retried"] == [[0, line]]


def test_connections_are_sockets_of_this_process(seen: dict[str, Any]) -> None:
    assert seen["connections"] > 0


def test_text_of_a_lost_ps(seen: dict[str, Any]) -> None:
    """A call whose connection is shut fails at once, and its error names the ps."""
    assert seen["lost"] == ["ps 0 was lost, and with it its share of the parameters"]


@pytest.mark.slow
def test_text_of_a_ps_that_forgot() -> None:
    """A closure and the chief itself read a variable of a ps, when ps and worker began again."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.insides.forgetting_program"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "kind": "InvalidArgumentError",
        "lost": "ps 0 was lost, and with it its share of the parameters",
        "own": "a ps was lost, and with it its share of the parameters",
    }


@pytest.mark.slow
def test_text_of_a_lost_replica() -> None:
    """A collective whose peer was killed; SIGTERM is not this process's own once they have met."""
    with Ports(2) as ports:
        chief, worker = [[f"127.0.0.1:{port}"] for port in ports.numbers]
    cluster = {"chief": chief, "worker": worker}
    programs = []
    for job in cluster:
        config = {"cluster": cluster, "task": {"type": job, "index": 0}}
        programs.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.insides.replica_program"],
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    first, other = programs
    try:
        for program in programs:
            assert program.stdout
            assert program.stdout.readline() == "SIGTERM was taken; the sum is 2.0\n"
        other.kill()
        said, _ = first.communicate("continue\n", timeout=200)
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert said == "True\n"


def test_device_names_of_tasks(seen: dict[str, Any]) -> None:
    assert seen["device"] == "/job:ps/replica:0/task:0/device:CPU:0"


def test_devices_on_another_task_in_a_loop(seen: dict[str, Any]) -> None:
    """Operations of a closure's loop run on the ps they name."""
    assert seen["loop"] == 3.0


FORKED = """
import os, sys
from cloud.local import fork
import trainer.loaded
assert not os.fork() or os.wait()[1] == 0, "the fork failed"
if os.getppid() != int(sys.argv[1]):  # the fork
    import concurrent.futures, time
    import tensorflow as tf
    from tensorflow.python.eager import context
    assert not context.context()._initialized
    server = tf.distribute.Server.create_local_server()
    assert tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))(tf.ones([64, 64])) == 64.0**3
    waits = concurrent.futures.ThreadPoolExecutor(1)
    waits.submit(lambda: (time.sleep(0.2), print("awaited")))  # by the end of the process
    fork._end(0)
print("ended")
"""


@pytest.mark.slow
def test_a_fork_of_a_process_that_has_loaded_computes() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(os.getpid())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (ended.returncode, ended.stdout) == (0, "awaited\nended\n"), ended.stderr
