"""Several threads push to the same parameters at the same time, as concurrent workers do."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.store.groups import lazy_group
from tests.store.optimizers import make
from tests.store.pushes import pull_dense, push
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.store.dense_parameters import DenseParameters
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.layout import DenseLayout

WORKERS, PUSHES = 4, 200
DENSE, HOT, DIM = 4000, 200, 8
DEVICES = ["/device:CPU:0"] * 2
RATE = 2.0**-7  # sums of it are exact in float32


class Pushed:
    """Dense parameters and a table, all 0 at first, after every worker's pushes."""

    def __init__(self, optimizer, gradients):
        rule = rule_for(optimizer)
        decays = bool(optimizer.weight_decay)
        layout = DenseLayout(("dense",), ((DENSE,),), len(DEVICES))
        dense = DenseParameters(layout, DEVICES, rule, np.zeros(DENSE, "f4"), [decays])
        table = Table("hot", HOT, DIM, keras.initializers.Zeros())
        group = lazy_group(GroupLayout((table,), len(DEVICES)), DEVICES, rule, decays)
        self.pulls = []
        steps = [tf.Variable(0, dtype=tf.int64) for _ in DEVICES]

        @tf.function(autograph=False)
        def work(factor):
            def one(step):
                before = [variable.assign_add(1) - 1 for variable in steps]
                gradient = factor * gradients[step % len(gradients)]
                push(dense, dense.send([tf.fill([DENSE], gradient)]), DEVICES, before)
                pulled = group.pull(AskedIds(tf.range(HOT)))
                sent = group.send(pulled, tf.fill([HOT, DIM], gradient))
                push(group, sent, DEVICES, before)
                return step + 1

            tf.while_loop(lambda step: step < PUSHES, one, [0], parallel_iterations=1)

        work.get_concrete_function(tf.constant(1.0))
        pull = tf.function(
            lambda: pull_dense(dense, DEVICES), autograph=False
        ).get_concrete_function()
        start = threading.Barrier(WORKERS + 1)

        def train(factor):
            start.wait()
            work(tf.constant(factor))

        workers = [threading.Thread(target=train, args=(1.0,)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        start.wait()
        while any(worker.is_alive() for worker in workers):
            self.pulls.append(pull()[0].numpy())
        self.dense, *self.dense_slots = _joined(dense)
        lines = _joined(group)[0].reshape(-1, 1 + len(rule.slots), DIM)
        self.rows, *self.row_slots = np.moveaxis(lines[group.layout.rows_of(0)], 1, 0)


def _joined(parameters):
    """Every logical tensor, from its parts."""
    tensors = {}
    for slice_ in parameters.slices():
        tensors.setdefault(slice_.name, []).append(slice_.variable.numpy())
    return [np.concatenate(parts) for parts in tensors.values()]


@pytest.mark.parametrize("kind", [keras.optimizers.SGD, keras.optimizers.Lion])
def test_every_push_counts_once(kind):
    """SGD's dense update is a fused kernel, Lion's is plain operations under a mutex."""
    pushed = Pushed(kind(RATE), tf.constant([1.0]))
    expected = np.float32(-RATE * WORKERS * PUSHES)
    assert (pushed.dense == expected).all()
    assert (pushed.rows == expected).all()


def test_every_push_counts_once_in_the_slots():
    adagrad = keras.optimizers.Adagrad(RATE, initial_accumulator_value=0.0, epsilon=0.0)
    pushed = Pushed(adagrad, tf.constant([1.0]))
    for slot in (*pushed.dense_slots, *pushed.row_slots):
        assert (slot == WORKERS * PUSHES).all()


def test_a_pull_of_dense_parameters_is_never_torn():
    pushed = Pushed(keras.optimizers.SGD(RATE), tf.constant([1.0]))
    for pull in pushed.pulls:
        for part in np.split(pull, len(DEVICES)):
            assert (part == part[0]).all()


@pytest.mark.parametrize(
    "name",
    [
        *("amsgrad", "rmsprop_centered_momentum"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("adagrad", "adamw", "ftrl", "rmsprop", "lion")
        ),
    ],
)
def test_slots_stay_finite_and_squares_never_negative(name):
    pushed = Pushed(make(name, "alone"), tf.constant([1e-6, 1.0, -1e3, 0.0, 30.0]))
    for values in (pushed.dense, pushed.rows, *pushed.dense_slots, *pushed.row_slots):
        assert np.isfinite(values).all()
    of_squares = ("accumulator", "velocity", "velocity_hat")
    for k, slot in enumerate(rule_for(make(name, "alone")).slots):
        if slot in of_squares:
            assert (pushed.dense_slots[k] > 0).all()
            assert (pushed.row_slots[k] > 0).all()
