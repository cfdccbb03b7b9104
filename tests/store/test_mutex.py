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


def test_what_only_reads_holds_the_mutex_until_it_has_read():
    """A change that comes between the two would be seen, as it takes long from one to the other."""
    mutex, count = Mutex("test", DEVICE), tf.Variable(0)
    matrix = tf.random.normal([400, 400])

    def read_twice():
        first = count.read_value()
        with tf.control_dependencies([first]):
            long = tf.linalg.matmul(matrix, tf.linalg.matmul(matrix, matrix))
        with tf.control_dependencies([long]):
            return (first, count.read_value(), tf.reduce_sum(long)), []

    read = mutex.guard(read_twice)
    change = mutex.guard(lambda: (tf.constant(True), [count.assign_add(1, read_value=False)]))
    is_over = threading.Event()

    def change_on():
        while not is_over.is_set():
            change()

    changing = threading.Thread(target=change_on)
    changing.start()
    try:
        found = [[int(each) for each in read()[:2]] for _ in range(300)]
    finally:
        is_over.set()
        changing.join()
    assert all(first == second for first, second in found)
    assert found[0][0] < found[-1][0]
