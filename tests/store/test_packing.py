"""What travels as one tensor is what it was, and what travels along is delivered behind a push."""

import numpy as np
import pytest
import tensorflow as tf

from tests.store.test_loss_scale import Half
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.messages import Note, Packing, bits_of, numbers_of, size_of_bits
from tfps.store.parameter_store import ParameterStore

ROWS, DENSE = tf.random.stateless_normal([5, 3], [1, 2]), tf.random.stateless_normal([7], [3, 4])
NUMBERS = tf.constant([1 / 3, -0.0, 2.0**40 + 1, float("nan"), 1e300], tf.float64)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("rows", [5, 0])
def test_parts_and_numbers_come_out_as_they_went_in(dtype, rows):
    packing, some, dense = Packing(), tf.cast(ROWS[:rows], dtype), tf.cast(DENSE, dtype)

    @tf.function(autograph=False)
    def there_and_back():
        packed = packing.pack([[some], [dense[:4], dense[4:]], [bits_of(NUMBERS, dtype)]])
        assert len(packed) == 1
        sizes = [tf.size(some), 7, size_of_bits(5, tf.float64, dtype)]
        values, flat, bits = packing.unpack(packed, sizes)
        return values, flat, numbers_of(bits, tf.float64)

    values, flat, numbers = there_and_back()
    assert np.array_equal(tf.reshape(values, [-1, 3]), some)
    assert np.array_equal(flat, dense)
    assert numbers.numpy().tobytes() == NUMBERS.numpy().tobytes()


def test_parts_without_values_are_empty():
    packing = Packing()
    packed = packing.pack([[ROWS], [DENSE[:0]]])
    rows, dense = packing.unpack(packed, [tf.size(ROWS), 0])
    assert (rows.shape, dense.shape) == ((15,), (0,))
    nothing, flat, none = packing.unpack(
        packing.pack([[ROWS[:0]], [DENSE], [DENSE[:0]]]), [0, 7, 0]
    )
    assert (nothing.shape, none.shape) == ((0,), (0,))
    assert np.array_equal(flat, DENSE)


def test_where_nothing_travels_parts_stay_by_themselves():
    packing = Packing(is_used=False)
    rows, dense = packing.unpack(packing.pack([[ROWS], [DENSE[:4], DENSE[4:]]]), [15, 7])
    assert rows is ROWS
    assert np.array_equal(dense, DENSE)


@pytest.mark.parametrize("is_finite", [True, False])
def test_a_note_is_delivered_behind_what_its_push_changes(is_finite):
    """Also where gradients are left out, since the loss scale was too large."""
    task = Half()
    model = StatelessModel(task, 0)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"], 0)
    told = tf.Variable(tf.zeros([2], tf.float64))
    before = store.dense.read_part(0)

    def deliver(numbers):
        is_changed = tf.reduce_any(store.dense.read_part(0) != before)
        return told.assign(tf.stack([numbers[0], tf.cast(is_changed, tf.float64)]))

    @tf.function(autograph=False)
    def push():
        pulled = store.pull([])
        gradient = 1.0 if is_finite else float("inf")
        gradients = [tf.fill(value.shape, gradient) for value in pulled.dense]
        rows = [tf.zeros([0, group.layout.dim]) for group in store.groups]
        note = Note(tf.constant([7.0], tf.float64), deliver)
        store.push(pulled, gradients, rows, pulled.state, note)

    push()
    assert told.numpy().tolist() == [7.0, float(is_finite)]
