import pytest
import tensorflow as tf

from tfps.store.lease_progress import LeaseProgress, SlotProgress

SLOT = tf.constant(1, tf.int64)
WORKERS = [tf.constant(worker, tf.int64) for worker in range(2)]


def change(steps, loss_sum):
    return tf.constant([0, steps, 0, loss_sum], tf.float64)


def test_a_lease_goes_on_behind_what_its_lost_worker_has_recorded():
    progress = LeaseProgress(2, "/device:CPU:0")
    first = progress.begin(SLOT, WORKERS[0])
    assert first.steps == 0
    progress.advance(SLOT, first.number, change(3, 1.5))
    second = progress.begin(SLOT, WORKERS[1])
    assert second.steps == 3
    progress.advance(SLOT, second.number, change(2, 1.0))
    assert progress.read() == [SlotProgress(0, -1, 0, 0, 0.0), SlotProgress(2, 1, 5, 0, 2.5)]
    assert progress.strayed() == 0


@pytest.mark.parametrize("worker", WORKERS)
def test_an_attempt_after_which_another_began_is_counted_apart(worker):
    progress = LeaseProgress(2, "/device:CPU:0")
    first = progress.begin(SLOT, WORKERS[0]).number
    assert progress.holds(SLOT, first)
    second = progress.begin(SLOT, worker).number
    assert not progress.holds(SLOT, first)
    progress.advance(SLOT, first, change(1, float("nan")))
    assert progress.read()[1] == SlotProgress(2, int(worker), 0, 0, 0.0)
    assert progress.strayed() == 1
    progress.clear(1)
    assert not progress.holds(SLOT, second)
    progress.advance(SLOT, second, change(2, 1.0))  # of the slot's last lease
    assert progress.read()[1] == SlotProgress(0, -1, 0, 0, 0.0)
    assert progress.strayed() == 3
