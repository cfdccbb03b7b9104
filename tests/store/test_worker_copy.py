import numpy as np
import tensorflow as tf

from tfps.store.model_state import WorkerCopy


def test_the_first_closure_fetches_what_later_ones_find():
    fetched = tf.Variable(0)

    def fetch():
        with tf.control_dependencies([fetched.assign_add(1)]):
            return tf.cast(tf.range(3), tf.float32) + 1.0

    copy = WorkerCopy(fetch, 3)

    def closure(steps):
        value = copy.value()
        return tf.while_loop(
            lambda k, _: k < steps, lambda k, total: (k + 1, total + value), [0, tf.zeros([3])]
        )[1]

    closures = [tf.function(lambda n=n: closure(n), autograph=False) for n in (1, 2)]
    for _ in range(2):
        for steps, each in enumerate(closures, 1):
            np.testing.assert_array_equal(each(), [steps, 2.0 * steps, 3.0 * steps])
    assert fetched.numpy() == 1
    another = WorkerCopy(fetch, 3)
    tf.function(another.value, autograph=False)()
    assert fetched.numpy() == 2
