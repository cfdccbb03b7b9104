import keras
import numpy as np
import tensorflow as tf

from tests.store.groups import lazy_group
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.store.clipping import GradientClipping
from tfps.store.group_layout import AskedIds, GroupLayout

DEVICES = ["/device:CPU:0"]


def group_of(name, dim, optimizer):
    table = Table(name, 10, dim, keras.initializers.Zeros())
    return lazy_group(GroupLayout((table,), 1), DEVICES, rule_for(optimizer))


def clip(dense_optimizer, optimizers, dense, rows):
    groups = [group_of(f"t{k}", 2 + k, optimizer) for k, optimizer in enumerate(optimizers)]
    pulled = [group.pull(AskedIds(tf.range(len(r)))) for group, r in zip(groups, rows, strict=True)]
    clipping = GradientClipping(rule_for(dense_optimizer), groups)
    return clipping.clip(dense, rows, pulled)


def test_gradients_that_nobody_wants_clipped_are_left_as_they_are():
    dense, rows = [tf.ones([3])], [tf.ones([2, 2])]
    clipped = clip(keras.optimizers.SGD(), [keras.optimizers.Adam()], dense, rows)
    assert clipped[0][0] is dense[0]
    assert clipped[1][0] is rows[0]


def test_a_global_norm_is_over_all_that_equal_optimizers_update():
    def limited():
        return keras.optimizers.SGD(global_clipnorm=1.0)

    dense, rows = [tf.constant([3.0])], [tf.constant([[4.0, 0.0]]), tf.constant([[7.0, 0.0, 0.0]])]
    clipped, (first, second) = clip(limited(), [limited(), keras.optimizers.SGD()], dense, rows)
    np.testing.assert_allclose(clipped[0], [0.6], rtol=1e-6)
    np.testing.assert_allclose(first, [[0.8, 0.0]], rtol=1e-6)
    assert second is rows[1]
    clipped, (first, second) = clip(keras.optimizers.SGD(), [limited()] * 2, dense, rows)
    assert clipped[0] is dense[0]
    norm = np.sqrt(4.0**2 + 7.0**2)
    np.testing.assert_allclose(first, rows[0] / norm, rtol=1e-6)
    np.testing.assert_allclose(second, rows[1] / norm, rtol=1e-6)


def test_a_gradient_of_zero_stays_zero():
    for option in ("clipnorm", "global_clipnorm", "clipvalue"):
        optimizer = keras.optimizers.SGD(**{option: 1.0})
        dense, rows = clip(optimizer, [optimizer], [tf.zeros([3])], [tf.zeros([2, 2])])
        assert (dense[0].numpy() == 0).all()
        assert (rows[0].numpy() == 0).all()


def test_a_model_may_have_nothing_to_clip():
    assert clip(keras.optimizers.SGD(global_clipnorm=1.0), [], [], []) == ([], [])
