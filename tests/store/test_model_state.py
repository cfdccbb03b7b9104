"""Moving averages under many workers: pulls and pushes of real steps, in the order of a crowd."""

import concurrent.futures
import dataclasses
import heapq

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.training_fixtures import Trainer, dataset
from tfps.experiment.mode import LocalSGD
from tfps.store.layout import DenseLayout, StateLayout
from tfps.store.model_state import ModelState
from tfps.worker.local_copy import LocalCopy
from tfps.worker.step import Batch

RECORDS, SPREAD = 16, 0.1
SEED = tf.zeros([2], tf.int64)


@keras.saving.register_keras_serializable("tests")
class GeometricMean(keras.layers.Layer):
    """Keeps a moving average that no sum of its parts gives."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[1:], initializer="ones", trainable=False)

    def call(self, inputs):
        batch = keras.ops.mean(keras.ops.square(inputs), 0)
        log = keras.ops.log
        self.mean.assign(keras.ops.exp(0.9 * log(self.mean) + 0.1 * log(batch)))
        return inputs


@dataclasses.dataclass(frozen=True)
class Normalized(Smoke):
    """Statistics of the features themselves, so that NumPy can say what they must be."""

    momentum: float = 0.9
    layer: type[keras.layers.Layer] | None = None

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        of_batch = keras.layers.BatchNormalization(momentum=self.momentum)
        hidden = (self.layer() if self.layer else of_batch)(numbers)
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def optimizer(self):
        return keras.optimizers.SGD(0.001)


class WithRows(Normalized):
    """As well as rows, which the ps change under a mutex."""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        row = keras.layers.Embedding(self.vocabulary, self.dim, name="token_table")(token)
        hidden = keras.layers.BatchNormalization()(keras.layers.Concatenate()([numbers, row]))
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"))


def batch_of(numbers):
    features = {"numbers": numbers, "token": tf.zeros([RECORDS], tf.int64)}
    return features, {"label": tf.zeros([RECORDS], tf.int64)}


def train_as_a_crowd(trainer, workers, pushes, seed=0):
    """Workers of different speeds, one in ten of them ten times as slow, push what they computed.

    Returns:
        The batches in the order in which they were pushed, and the state after each push.
    """
    store, step, drawn = trainer.store, trainer.step, np.random.default_rng(seed)

    @tf.function(autograph=False)
    def pull():
        pulled = store.pull([])
        return pulled.state, pulled.versions

    @tf.function(autograph=False)
    def push(state, versions, numbers):
        features, labels = batch_of(numbers)
        batch = step.pull(features, labels)
        stale = batch.pulled._replace(state=state, versions=versions)
        step.train(batch._replace(pulled=stale), SEED)

    first = pull()
    waiting = [(drawn.random(), worker) for worker in range(workers)]
    held, batches, states = dict.fromkeys(range(workers), first), [], []
    heapq.heapify(waiting)
    for _ in range(pushes):
        now, worker = heapq.heappop(waiting)
        numbers = (SPREAD * drawn.normal(size=(RECORDS, 4))).astype("f4")
        push(*held[worker], tf.constant(numbers))
        held[worker] = pull()
        batches.append(numbers)
        states.append(np.stack([value.numpy() for value in held[worker][0]]))
        slowness = 10 if worker % 10 == 9 else 1
        heapq.heappush(waiting, (now + slowness * (0.8 + 0.4 * drawn.random()), worker))
    return batches, np.stack(states)


def one_after_the_other(batches, momentum):
    """Mean and variance after each batch, `[batches, 2, 4]`, if one process had trained them."""
    moving, states = np.array([np.zeros(4), np.ones(4)]), []
    for batch in batches:
        of_batch = np.stack([batch.mean(0, dtype="f8"), batch.var(0, dtype="f8")])
        moving = momentum * moving + (1 - momentum) * of_batch
        states.append(moving)
    return np.stack(states)


@pytest.mark.parametrize(
    ("momentum", "workers", "pushes"),
    [
        (0.9, 24, 240),
        pytest.param(0.99, 200, 1000, marks=pytest.mark.slow),
        pytest.param(0.9, 1000, 4000, marks=pytest.mark.slow),
        pytest.param(0.99, 1000, 4000, marks=pytest.mark.slow),
    ],
)
def test_moving_averages_of_a_crowd_are_those_of_one_process(manifest, momentum, workers, pushes):
    trainer = Trainer(manifest, Normalized(momentum=momentum))
    batches, states = train_as_a_crowd(trainer, workers, pushes)
    assert (states[:, 1] >= 0).all()
    np.testing.assert_allclose(states, one_after_the_other(batches, momentum), atol=1e-5)


def test_state_that_is_no_such_average_is_a_mean_of_what_workers_make_of_it(manifest):
    trainer = Trainer(manifest, Normalized(layer=GeometricMean))
    assert not trainer.store.state.is_recurrent
    _, states = train_as_a_crowd(trainer, workers=8, pushes=240)
    assert (states > 0).all()
    assert (states[-1] > 0.5 * SPREAD**2).all()
    assert (states[-1] < 5 * SPREAD**2).all()


def test_local_steps_of_several_workers_are_those_of_one_process(manifest):
    """All pull the same, and push one after the other."""
    momentum, workers, steps, rounds = 0.9, 4, 2, 8
    mode = LocalSGD(sync_every=steps)
    trainer = Trainer(manifest, Normalized(momentum=momentum), mode=mode)

    @tf.function(autograph=False)
    def train(numbers):
        copies = []
        for mine in tf.unstack(numbers):
            batches = [batch_of(each) for each in tf.unstack(mine)]
            copy = LocalCopy(trainer.store, workers, [trainer.step.lookups(*b) for b in batches])
            for number, batch in enumerate(batches):
                ready = Batch(*batch, copy.pulled(number))
                copy.update(number, trainer.step.gradients(ready, SEED)[1])
            copies.append(copy)
        for copy in copies:
            copy.push()

    shape = (rounds, workers, steps, RECORDS, 4)
    numbers = (SPREAD * np.random.default_rng(0).normal(size=shape)).astype("f4")
    for each in numbers:
        train(tf.constant(each))
    expected = one_after_the_other(numbers.reshape(-1, RECORDS, 4), momentum)[-1]
    np.testing.assert_allclose(np.stack(trainer.store.read_state()), expected, atol=1e-5)


def test_no_push_at_the_same_time_is_lost():
    """A counter and an average, pushed by four threads."""
    layout = StateLayout(DenseLayout(("counter", "average"), ((), (1000,)), 1), (True, True))
    state = ModelState(layout, [1.0, 0.5], np.zeros(1001, "f4"), "/device:CPU:0")
    increment = tf.constant(np.array([1.0] + [0.5] * 1000, "f4"))

    @tf.function(autograph=False)
    def push():
        state.push(increment)

    push.get_concrete_function()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for pushed in [threads.submit(push) for _ in range(1000)]:
            pushed.result(60)
    counter, average = state.read()
    assert counter == 1000
    np.testing.assert_allclose(average, 1.0)


def test_what_no_step_changes_is_no_part_of_a_push():
    names, shapes = ("frozen", "counter", "kernel", "average"), ((2,), (), (3, 2), (4,))
    layout = StateLayout(DenseLayout(names, shapes, 1), (False, True, False, True))
    initial = np.arange(13, dtype="f4")
    state = ModelState(layout, [1.0, 1.0, 1.0, 0.5], initial, "/device:CPU:0")

    @tf.function(autograph=False)
    def step():
        frozen, counter, kernel, average = before = state.pull()
        after = [frozen, counter + 1, kernel, 0.5 * average + 1]
        increment = state.increment(before, after)
        assert increment.shape == [5]
        with tf.control_dependencies([state.push(increment)]):
            state.add(tf.ones([5]))

    step()
    step()
    frozen, counter, kernel, average = state.read()
    np.testing.assert_array_equal(np.ravel(frozen), initial[:2])
    np.testing.assert_array_equal(np.ravel(kernel), initial[3:9])
    assert counter == 2 + 2 * 2
    np.testing.assert_allclose(average, (initial[9:] / 2 + 2) / 2 + 2)
    slices = state.slices()
    assert {(each.name, each.shape) for each in slices} == {("state", (13,))}
    assert [(each.first, each.count) for each in slices] == [(0, 2), (2, 1), (3, 6), (9, 4)]
    held = np.concatenate([each.variable.numpy() for each in slices])
    np.testing.assert_array_equal(held, np.concatenate([np.ravel(x) for x in state.read()]))


def test_workers_that_push_rows_and_state_do_not_wait_for_each_other(manifest):
    """Nothing of a step depends on the averages, so steps overlap where mutexes are held."""
    trainer = Trainer(manifest, WithRows(), parts=3)
    numbers = tf.ones([RECORDS, 4])

    @tf.function(autograph=False)
    def train(steps):
        def step(left):
            for _ in range(2):
                batch = trainer.step.pull(*batch_of(numbers))
                loss = trainer.step.train(batch, SEED)
            with tf.control_dependencies([loss]):
                return left - 1

        return tf.while_loop(lambda left: left > 0, step, [steps])

    train.get_concrete_function(tf.TensorSpec([], tf.int32))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for trained in [threads.submit(train, tf.constant(100)) for _ in range(4)]:
            trained.result(120)
    assert trainer.steps() == 4 * 2 * 100
