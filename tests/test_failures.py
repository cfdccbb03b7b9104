import pytest
import tensorflow as tf

from tfps import failures
from tfps.errors import RunError, UserError

GAVE_UP = "All 8 retry attempts failed. The last failure: Error executing an HTTP request"
PATH = "gs://bucket/shard"


def error(kind, message):
    return kind(None, None, message)


def test_storage_that_gives_no_answer_to_a_ps_is_no_lost_ps():
    task = "/job:ps/replica:0/task:1/device:CPU:0"
    lost = failures.lost_ps_behind(error(tf.errors.AbortedError, f"{task} is gone"))
    assert "ps 1 was lost" in str(lost)
    assert not failures.lost_ps_behind(error(tf.errors.AbortedError, f"{task}: {GAVE_UP}"))


@pytest.mark.parametrize(
    ("kind", "message", "theirs", "told"),
    [
        (tf.errors.AbortedError, GAVE_UP, RunError, "cannot be read (All 8 retry attempts failed"),
        (tf.errors.PermissionDeniedError, "HTTP 403", UserError, "may not read shard gs://bucket"),
    ],
)
def test_what_a_worker_could_not_read(kind, message, theirs, told):
    found = failures.explain(error(kind, message), "training epoch 1", PATH, list)
    assert isinstance(found, theirs)
    assert told in str(found)
