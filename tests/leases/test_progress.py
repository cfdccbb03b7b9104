import concurrent.futures

import pytest
import tensorflow as tf

from tfps.leases.progress import REFUSED, LaneProgress, LeaseProgress

LANE = tf.constant(1, tf.int64)
WORKERS = [tf.constant(worker, tf.int64) for worker in range(2)]


def change(steps, loss_sum):
    return tf.constant([0, steps, 0, loss_sum], tf.float64)


def test_a_lease_goes_on_behind_what_its_lost_worker_has_recorded():
    progress = LeaseProgress(2, "/device:CPU:0")
    first = progress.begin(LANE, WORKERS[0])
    assert first.steps == 0
    progress.advance(LANE, first.number, change(3, 1.5))
    second = progress.begin(LANE, WORKERS[1])
    assert second.steps == 3
    progress.advance(LANE, second.number, change(2, 1.0))
    assert progress.read() == [LaneProgress(0, -1, 0, 0, 0.0), LaneProgress(2, 1, 5, 0, 2.5)]
    assert progress.orphaned_batches() == 0


@pytest.mark.parametrize("worker", WORKERS)
def test_an_attempt_after_which_another_began_is_counted_apart(worker):
    progress = LeaseProgress(2, "/device:CPU:0")
    first = progress.begin(LANE, WORKERS[0]).number
    assert progress.holds(LANE, first)
    second = progress.begin(LANE, worker).number
    assert not progress.holds(LANE, first)
    progress.advance(LANE, first, change(1, float("nan")))
    assert progress.read()[1] == LaneProgress(2, int(worker), 0, 0, 0.0)
    assert progress.orphaned_batches() == 1
    progress.clear({1: 0})
    assert not progress.holds(LANE, second)
    progress.advance(LANE, second, change(2, 1.0))  # of the lane's last lease
    assert progress.read()[1] == LaneProgress(0, -1, 0, 0, 0.0)
    assert progress.orphaned_batches() == 3


def place(progress, lease):
    return tf.constant(progress.place(1, lease), tf.int64)


def test_a_closure_of_another_lease_is_refused():
    """It changes nothing, whether its lease is over or the lane's lease has begun or not."""
    progress = LeaseProgress(2, "/device:CPU:0")
    progress.clear({1: 7})
    late = progress.begin(place(progress, 7), WORKERS[0])
    progress.clear({1: 8})
    for _ in range(2):
        assert progress.begin(place(progress, 7), WORKERS[0]).number == REFUSED
        assert progress.read()[1] == LaneProgress(0, -1, 0, 0, 0.0)
        assert progress.result(LANE, late.number)[1] == -1
    own = progress.begin(place(progress, 8), WORKERS[1])
    progress.advance(LANE, own.number, change(4, 2.0))
    refused = progress.begin(place(progress, 7), WORKERS[0])
    assert not progress.holds(LANE, refused.number)
    progress.advance(LANE, refused.number, change(1, 1.0))
    assert progress.result(LANE, refused.number)[1] == -1
    assert progress.result(LANE, own.number).numpy().tolist() == [1, 4, 0, 2.0]
    assert progress.read()[1] == LaneProgress(1, 1, 4, 0, 2.0)
    assert progress.orphaned_batches() == 1


def test_of_attempts_that_begin_at_once_one_holds_the_lease():
    """And what is advanced meanwhile is in the lane, or counted apart."""
    progress, each, threads = LeaseProgress(2, "/device:CPU:0"), 100, 4

    @tf.function(autograph=False)
    def begin():
        attempt = progress.begin(LANE, WORKERS[0])
        progress.advance(LANE, attempt.number, change(1, 0.5))
        return attempt.number

    begin.get_concrete_function()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        runs = [pool.submit(lambda: [int(begin()) for _ in range(each)]) for _ in range(threads)]
        numbers = [number for run in runs for number in run.result()]
    assert sorted(numbers) == list(range(1, threads * each + 1))
    row = progress.read()[1]
    assert row.attempts == threads * each
    assert row.steps + progress.orphaned_batches() == threads * each
    assert row.loss_sum == row.steps / 2
    assert progress.holds(LANE, tf.constant(threads * each, tf.int64))
