import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import TaskOf
from tfps.data.feature import Feature
from tfps.model import variables
from tfps.model.stateless_model import StatelessModel
from tfps.model.variables import draw_of

SEED = tf.constant(2**62 + 12345, tf.int64)
STEPS, LAYERS, DRAWS = 20, 3, 8
KERAS_MODULUS = 2**31 - 2


def step(number):
    return tf.constant(number, tf.int64)


@pytest.mark.parametrize("devices", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_no_two_of_steps_devices_and_layers_draw_the_same(devices):
    """As Keras sees it: both numbers modulo its own, the second counted up with each draw."""

    @tf.function(autograph=False)
    def begin(number):
        on_devices = [variables.on_device(draw_of(SEED, number), k) for k in range(devices)]
        return tf.stack([variables.of_layer(draw, k) for draw in on_devices for k in range(LAYERS)])

    first = np.concatenate([begin(step(number)).numpy() for number in range(STEPS)])
    assert first.shape == (STEPS * devices * LAYERS, 2)
    drawn = (first[:, None] + [[0, count] for count in range(DRAWS)]) % KERAS_MODULUS
    assert len({tuple(pair) for pair in drawn.reshape(-1, 2).tolist()}) == drawn.size // 2


def test_what_a_step_draws_depends_on_nothing_else():
    for index in (0, 2):
        one, other = (variables.of_layer(draw_of(SEED, step(7)), index) for _ in range(2))
        np.testing.assert_array_equal(one, other)


def test_no_layer_draws_what_another_one_draws_in_a_later_step():
    """Keras takes 65,536, by which layers were apart, for 16,384 steps."""

    def build():
        inputs = keras.Input((64,), name="x")
        masks = [keras.layers.Dropout(0.5, name=name)(inputs) for name in ("a", "b")]
        return keras.Model(inputs, keras.layers.Concatenate()(masks))

    model = StatelessModel(TaskOf(build, (Feature("x", "float32", (64,)),)), seed=0)

    def masks(number):
        ones, labels = {"x": tf.ones([1, 64])}, {"label": tf.zeros([1], tf.int64)}
        draw = draw_of(tf.constant(5, tf.int64), step(number))
        run = model.forward([], [], [], draw, ones, labels, training=True)
        return np.split(run.outputs[0].numpy() > 0, 2)

    (_, second), (first, _) = masks(0), masks(16_384)
    assert not np.array_equal(first, second)


def test_what_has_no_kernel_on_a_gpu_is_computed_on_the_cpu():
    """TensorFlow makes one AddN of several additions, and has it for uint64 on CPUs alone."""
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:1/device:GPU:0"):
        variables.of_layer(tf.zeros([2], tf.int64), 1)
    added = [each for each in graph.get_operations() if each.type == "AddV2"]
    assert added
    assert {each.device for each in added} == {"/job:worker/task:1/device:CPU:0"}
