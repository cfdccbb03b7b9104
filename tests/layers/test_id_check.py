import pytest
import tensorflow as tf

from tfps.cluster.failures import first_line
from tfps.layers.id_check import fail_unless


@tf.function(autograph=False)
def below_five(x):
    return x + fail_unless(x < 5, lambda: tf.strings.format("{} is not below {}", (x, 5)))


def test_what_is_fine_is_not_changed():
    assert int(below_five(tf.constant(4, tf.int64))) == 4


def test_the_message_is_the_callers_own():
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        below_five(tf.constant(7, tf.int64))
    assert first_line(caught.value) == "7 is not below 5"


def test_it_orders_nothing():
    """An operation with state would wait for all others, those on other tasks too."""
    graph = below_five.get_concrete_function(tf.constant(4, tf.int64)).graph
    assert not any(op.op_def.is_stateful for op in graph.get_operations() if op.op_def)
    assert not graph.control_outputs
