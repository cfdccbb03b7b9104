import pytest
import tensorflow as tf

from tfps.cluster import failures
from tfps.errors import LostPsError, RunError, UserError

GAVE_UP = "All 8 retry attempts failed. The last failure: Error executing an HTTP request"
PATH = "gs://bucket/shard"


def error(kind, message):
    return kind(None, None, message)


def test_storage_that_gives_no_answer_to_a_ps_is_no_lost_ps():
    task = "/job:ps/replica:0/task:1/device:CPU:0"
    lost = failures.lost_ps_behind(error(tf.errors.AbortedError, f"{task} is gone"))
    assert "ps 1 was lost" in str(lost)
    assert not failures.lost_ps_behind(error(tf.errors.AbortedError, f"{task}: {GAVE_UP}"))


def test_a_ps_that_knows_its_variables_no_more_is_a_lost_ps():
    forgotten = "Unable to find the relevant tensor remote_handle: Op ID: 69, Output num: 0."
    said = (
        "Graph execution error:\n2 root error(s) found.\n"
        f"  (0) INVALID_ARGUMENT:  {forgotten}\n"
        "Additional GRPC error information from remote target "
        "/job:{}/device:CPU:0 while calling /tensorflow.eager.EagerService/RunComponentFunction:"
    )
    ps = error(tf.errors.InvalidArgumentError, said.format("ps/replica:0/task:1"))
    found = failures.explain(ps, "training epoch 1", PATH)
    assert isinstance(found, LostPsError)
    assert "ps 1 was lost" in str(found)
    worker = error(tf.errors.InvalidArgumentError, said.format("worker/replica:0/task:1"))
    assert not failures.lost_ps_behind(worker)


def test_a_variable_of_another_connection_is_a_lost_ps():
    """The chief's own read, when workers and a ps were killed within a second."""
    said = (
        "Resource input tensor contains an invalid device. This might happen when the client has "
        "connected to a different cluster, or some remote workers have been restarted."
    )
    found = failures.lost_ps_behind(error(tf.errors.InvalidArgumentError, said))
    assert str(found) == "a ps was lost, and with it its share of the parameters"


@pytest.mark.parametrize("job", ["ps", "worker"])
def test_a_request_that_a_task_cannot_read_is_made_again_over_a_new_connection(job):
    said = (
        "Graph execution error:\n\nUnable to parse request\nAdditional GRPC error information from "
        "remote target /job:{}/replica:0/task:0/device:CPU:0 while calling "
        "/tensorflow.eager.EagerService/RunComponentFunction:\n:UNKNOWN:Error received from peer  "
        '{{grpc_message:"Unable to parse request", grpc_status:13}} [Op:__inference_run_13900]'
    )
    found = failures.lost_ps_behind(error(tf.errors.InternalError, said.format(job)))
    assert str(found) == f"{job} 0 could not read what it was sent"
    assert not failures.lost_ps_behind(error(tf.errors.InternalError, "another one"))


@pytest.mark.parametrize(
    ("kind", "message", "theirs", "told"),
    [
        (tf.errors.AbortedError, GAVE_UP, RunError, "cannot be read (All 8 retry attempts failed"),
        (tf.errors.PermissionDeniedError, "HTTP 403", UserError, "may not read shard gs://bucket"),
    ],
)
def test_what_a_worker_could_not_read(kind, message, theirs, told):
    found = failures.explain(error(kind, message), "training epoch 1", PATH)
    assert isinstance(found, theirs)
    assert told in str(found)


def test_an_operation_without_a_kernel_is_no_missing_shard():
    said = "No registered 'AddN' OpKernel for 'GPU' devices compatible with node {{node add_5}}"
    found = failures.explain(error(tf.errors.NotFoundError, said), "training epoch 1", PATH)
    assert isinstance(found, RunError)
    assert "No registered 'AddN' OpKernel for 'GPU'" in str(found)
    assert "every task" not in str(found)
