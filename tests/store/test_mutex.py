import threading

import pytest
import tensorflow as tf

from tfps.store.mutex import Mutex

DEVICE = "/device:CPU:0"


def test_a_step_that_fails_frees_the_mutex():
    mutex, count = Mutex("test", DEVICE), tf.Variable(0)

    def count_if(good):
        check = tf.debugging.Assert(good, ["bad"])
        with tf.control_dependencies([check]):
            return tf.constant(True), [count.assign_add(1, read_value=False)]

    step = tf.function(mutex.guard(count_if), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(False))
    waiting = threading.Thread(target=step, args=(tf.constant(True),), daemon=True)
    waiting.start()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    assert count.numpy() == 1
