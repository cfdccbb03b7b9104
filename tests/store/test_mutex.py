import threading

import pytest
import tensorflow as tf

from tfps.store.mutex import Mutex

DEVICE = "/device:CPU:0"


def test_a_step_that_fails_frees_the_mutex():
    mutex, count = Mutex("test", DEVICE), tf.Variable(0)

    @tf.function(autograph=False)
    def step(good):
        lock = mutex.lock([])
        with tf.control_dependencies([lock]):
            check = tf.debugging.Assert(good, ["bad"])
        with tf.control_dependencies([check]):
            write = count.assign_add(1, read_value=False)
        mutex.release(lock, [write])

    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(False))
    waiting = threading.Thread(target=step, args=(tf.constant(True),), daemon=True)
    waiting.start()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    assert count.numpy() == 1
