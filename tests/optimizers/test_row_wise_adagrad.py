"""Adagrad with one accumulator per row: in plain Keras, and on the ps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.optimizers.rules import rule_for, rule_of
from tfps.optimizers.update_rule import RowUpdate

OPTIONS = {"learning_rate": 0.3, "initial_accumulator_value": 0.2, "epsilon": 1e-3}


def by_formula(rows, gradients):
    """Rows after some gradients, in float64."""
    rows = rows.astype(np.float64)
    accumulator = np.full([len(rows), 1], OPTIONS["initial_accumulator_value"])
    for gradient in gradients:
        accumulator += np.mean(gradient.astype(np.float64) ** 2, 1, keepdims=True)
        rows -= OPTIONS["learning_rate"] * gradient / np.sqrt(accumulator + OPTIONS["epsilon"])
    return rows


@pytest.fixture
def drawn():
    generator = np.random.default_rng(1)
    gradients = generator.normal(size=[6, 7, 4]).astype("f4")
    gradients[2, 3] = 0.0
    return generator.normal(size=[7, 4]).astype("f4"), gradients


def test_its_rule_is_the_formula(drawn):
    rows, gradients = drawn
    rule = rule_for(tfps.RowWiseAdagrad(**OPTIONS))
    [slot] = rule.slots.values()
    values, slots = tf.constant(rows), [tf.fill([7, 1], slot.start)]
    for step, gradient in enumerate(gradients):
        values, *slots = rule.sparse(
            RowUpdate(values, slots, tf.constant(gradient), tf.constant(step))
        )
    np.testing.assert_allclose(values, by_formula(rows, gradients), rtol=0, atol=1e-5)
    assert slots[0].shape == (7, 1)


def test_in_keras_it_is_the_formula(drawn):
    rows, gradients = drawn
    optimizer, variable = tfps.RowWiseAdagrad(**OPTIONS), keras.Variable(rows)
    for gradient in gradients:
        # As the gradient of a lookup comes, a row in it twice.
        halves = tf.constant(np.concatenate([gradient * 0.25, gradient * 0.75]))
        twice = tf.constant([*range(7), *range(7)])
        optimizer.apply([tf.IndexedSlices(halves, twice, [7, 4])], [variable])
    np.testing.assert_allclose(variable, by_formula(rows, gradients), rtol=0, atol=1e-5)
    assert optimizer.variables[-1].shape == (7, 1)


def test_with_rows_of_one_value_it_is_keras_own(drawn):
    rows, gradients = drawn
    variables = [keras.Variable(rows[:, :1]) for _ in range(2)]
    for kind, variable in zip(
        (tfps.RowWiseAdagrad, keras.optimizers.Adagrad), variables, strict=True
    ):
        optimizer = kind(**OPTIONS)
        for gradient in gradients:
            optimizer.apply([tf.constant(gradient[:, :1])], [variable])
    np.testing.assert_allclose(*variables, rtol=0, atol=1e-6)


def test_a_model_is_fitted_saved_and_loaded_with_it(tmp_path):
    model = keras.Sequential([keras.layers.Embedding(9, 3), keras.layers.Dense(1)])
    model.compile(tfps.RowWiseAdagrad(0.5), "mse")
    ids = np.arange(9)[:, np.newaxis]
    history = model.fit(ids, ids / 9.0, epochs=30, batch_size=3, verbose=0).history["loss"]
    assert history[-1] < 0.2 * history[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for mine, theirs in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_its_rule_is_made_again_from_its_settings():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    for rate in (0.1, schedule):
        rule = rule_for(tfps.RowWiseAdagrad(rate, epsilon=0.5))
        assert rule_of(rule.settings) == rule
        assert rule != rule_for(tfps.RowWiseAdagrad(rate))
