import itertools

import pytest
import tensorflow as tf

from tfps.cluster.liveness import Liveness, ProbeResult
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.executor import ClosureFailure, FailureLog, RepeatedFailure
from tfps.errors import LostPsError, RunError
from tfps.job_dir.task_name import TaskName

WORKERS = (0, 1)
ADDRESSES = {TaskName("worker", worker): f"host:{worker}" for worker in WORKERS}
UNKNOWN = "/job:localhost/replica:0/task:0/device:CPU:0 unknown device."
AT_WORKER = "/job:worker/replica:0/task:{}/device:GPU:0 unknown device."


class Quiet:
    """A prober that has reported all it knows."""

    reported_until = float("inf")

    def start(self, on_result):
        """Reports nothing of itself."""

    def stop(self):
        """Has nothing to end."""


@pytest.fixture
def monitor():
    monitor = TaskMonitor(ADDRESSES, Quiet())
    monitor.start()
    return monitor


@pytest.fixture
def repeated(monitor):
    return RepeatedFailure(WORKERS, monitor)


def failure(worker, line=UNKNOWN, kind=tf.errors.InvalidArgumentError):
    rest = f"\nAdditional GRPC error information from remote target /job:worker/task:{worker}"
    return ClosureFailure(worker, kind(None, None, line + rest))


def test_what_every_worker_fails_with_three_times_ends_the_run(repeated):
    for worker, _ in itertools.product(WORKERS, range(3)):
        repeated.refuse("training epoch 1")
        repeated.note([failure(worker)])
    told = r"training epoch 1: every worker fails in the same way.*: /job:localhost.* device; look"
    with pytest.raises(RunError, match=told):
        repeated.refuse("training epoch 1")


def test_a_line_that_names_the_worker_is_the_same_on_each(repeated):
    repeated.note([failure(worker, AT_WORKER.format(worker)) for worker in WORKERS * 3])
    with pytest.raises(RunError, match="GPU:0 unknown device"):
        repeated.refuse("evaluation")


@pytest.mark.parametrize(
    "failures",
    [
        [failure(0)] * 9,
        [failure(worker) for worker in WORKERS * 2],
        [failure(0)] * 3 + [failure(1, "another line")] * 3,
        [failure(0), failure(0, "another line"), failure(0)] * 3 + [failure(1)] * 3,
        [failure(w, "/job:ps/replica:0/task:0", tf.errors.AbortedError) for w in WORKERS * 3],
        [failure(w, "All 3 retry attempts failed", tf.errors.AbortedError) for w in WORKERS * 3],
        [failure(w, "RPC cancelled", tf.errors.CancelledError) for w in WORKERS * 3],
    ],
    ids=["one worker", "too few", "differ", "take turns", "a ps", "storage", "cancelled"],
)
def test_what_may_have_another_cause_is_left_to_tensorflow(repeated, failures):
    repeated.note(failures)
    repeated.refuse("training epoch 1")


def test_it_counts_again_after_what_was_trained_and_after_a_loss(repeated, monitor):
    most = [failure(worker) for worker in WORKERS * 2]
    for forget in (
        repeated.forget,
        lambda: monitor.record(ProbeResult("host:1", Liveness.REFUSES, 0.0, 0.0)),
        lambda: monitor.record(ProbeResult("host:1", Liveness.ANSWERS, 0.0, 0.0)),
    ):
        repeated.note(most)
        forget()
        repeated.note(most)
        repeated.refuse("training epoch 1")
    repeated.note(most)
    with pytest.raises(RunError):
        repeated.refuse("training epoch 1")


def test_a_log_tells_what_failed_on_a_worker_since_it_was_asked():
    log = FailureLog()
    worker, error = failure(1)
    device = f"/job:worker/replica:0/task:{worker}"
    tf.get_logger().error("Worker %s failed with %r:%s", device, error, error)
    tf.get_logger().error("something else %s", "of another kind")
    assert log.take() == [(1, error)]
    assert log.take() == []
    handlers = len(tf.get_logger().handlers)
    del log
    assert len(tf.get_logger().handlers) == handlers - 1


def test_a_failure_that_told_of_a_lost_ps_is_known_until_a_closure_gets_somewhere(repeated):
    """TensorFlow may raise an error that it derives from it, and that names nobody."""
    from_ps = "Socket closed\nAdditional GRPC error from remote target /job:ps/replica:0/task:1"
    repeated.note([failure(0)])
    repeated.refuse_lost_ps()
    for line in (from_ps, UNKNOWN):
        repeated.note([failure(0, line, tf.errors.UnavailableError)])
    with pytest.raises(LostPsError, match="ps 1"):
        repeated.refuse_lost_ps()
    repeated.forget()
    repeated.refuse_lost_ps()
