import tensorflow as tf

from tfps.store.lease_progress import LeaseProgress, SlotProgress

SLOT = tf.constant(1, tf.int64)
WORKERS = [tf.constant(worker, tf.int64) for worker in range(2)]


def change(steps, loss_sum):
    return tf.constant([0, steps, 0, loss_sum], tf.float64)


def test_a_lease_goes_on_behind_what_its_lost_worker_has_recorded():
    progress = LeaseProgress(2, "/device:CPU:0")
    assert progress.begin(SLOT, WORKERS[0]) == 0
    progress.advance(SLOT, WORKERS[0], change(3, 1.5))
    assert progress.begin(SLOT, WORKERS[1]) == 3
    progress.advance(SLOT, WORKERS[1], change(2, 1.0))
    assert progress.read() == [SlotProgress(0, -1, 0, 0, 0.0), SlotProgress(2, 1, 5, 0, 2.5)]


def test_a_worker_that_was_taken_for_dead_records_nothing_more():
    progress = LeaseProgress(2, "/device:CPU:0")
    progress.begin(SLOT, WORKERS[0])
    progress.begin(SLOT, WORKERS[1])
    progress.advance(SLOT, WORKERS[0], change(1, float("nan")))
    assert progress.read()[1] == SlotProgress(2, 1, 0, 0, 0.0)
    progress.clear(1)
    progress.advance(SLOT, WORKERS[1], change(1, 1.0))  # of the slot's last lease
    assert progress.read()[1] == SlotProgress(0, -1, 0, 0, 0.0)
