import keras
import numpy as np
import tensorflow as tf

from tests.store.groups import lazy_group
from tests.store.pushes import push
from tests.training_fixtures import Trainer, dataset
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.store.dense_parameters import DenseParameters
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.layout import DenseLayout
from tfps.store.messages import Wire

DEVICES = ["/device:CPU:0"] * 2
NARROW = Wire("bfloat16")


def rounded(values):
    return tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()


def test_float32_passes_as_it_is():
    value = tf.constant([1.2345678])
    wire = Wire("float32")
    assert wire.send(value) is value
    np.testing.assert_array_equal(wire.receive(value), value)
    assert (wire.value_bytes, NARROW.value_bytes) == (4, 2)


def test_what_is_pulled_is_rounded_but_what_the_ps_hold_is_not(tmp_path):
    manifest = dataset(tmp_path, records=100, shards=1)
    trainer = Trainer(manifest, wire_dtype="bfloat16")
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    store = trainer.store
    pulled = store.pull([])
    for narrow, held in zip(pulled.dense, store.read_dense(), strict=True):
        assert np.array_equal(narrow.numpy(), rounded(held))
    kept = [slice_ for slice_ in store.slices() if "last_update" not in slice_.name]
    for slice_ in kept:  # parameters, slots and state
        values = slice_.variable.numpy()
        assert values.dtype == np.float32
        assert not np.array_equal(values, rounded(values)), slice_.name
    for state, held in zip(pulled.state, store.read_state(), strict=True):
        assert np.array_equal(state.numpy(), held)


def test_rows_and_their_summed_gradients_are_rounded_once():
    """SGD with rate 1 on a row: what it loses is what has arrived of the gradient."""
    table = Table("table", 1000, 4, keras.initializers.RandomUniform(-1, 1))
    rule = rule_for(keras.optimizers.SGD(1.0))
    group = lazy_group(GroupLayout((table,), 2), DEVICES, rule, wire=NARROW)
    before = group.read_table(0)
    ids = tf.constant([7, 900, 7, 7])
    gradient = tf.constant(np.random.default_rng(0).normal(size=(4, 4)).astype("f4"))
    pulled = group.pull(AskedIds(ids))
    assert np.array_equal(tf.gather(pulled.rows, pulled.inverse), rounded(before)[ids.numpy()])
    sent = group.send(pulled, group.sum_by_row(pulled, gradient))
    tf.function(lambda: push(group, sent, DEVICES, [0, 0]), autograph=False)()
    after = group.read_table(0)
    for row, total in ((7, gradient[0] + gradient[2] + gradient[3]), (900, gradient[1])):
        np.testing.assert_array_equal(after[row], before[row] - rounded(total))
    assert (after != before).any(1).sum() == 2


def test_dense_gradients_are_rounded():
    layout = DenseLayout(("a", "b"), ((3, 5), (8,)), 2)
    initial = np.linspace(-1, 1, 23, dtype="f4")
    rule = rule_for(keras.optimizers.SGD(1.0))
    dense = DenseParameters(layout, DEVICES, rule, initial, [False, False], NARROW)
    gradients = [tf.random.stateless_normal(shape, (1, 2)) for shape in layout.shapes]
    tf.function(lambda: push(dense, dense.send(gradients), DEVICES, [0, 0]), autograph=False)()
    expected = [
        value - rounded(gradient)
        for value, gradient in zip(layout.unflatten(initial), gradients, strict=True)
    ]
    for value, other in zip(dense.read(), expected, strict=True):
        np.testing.assert_array_equal(value, other)
