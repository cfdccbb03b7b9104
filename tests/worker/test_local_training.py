import dataclasses
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.checkpoint.saved_state import whole
from tests.store.optimizers import OPTIMIZERS
from tests.training_fixtures import InHalfPrecision, Trainer, WithOptimizer, dataset
from tfps.experiment.mode import Async, LocalSGD
from tfps.store.group_layout import AskedIds
from tfps.worker.closures import LeaseResult
from tfps.worker.local_copy import LocalCopy
from tfps.worker.local_sgd import LocalSgdLoop
from tfps.worker.step import Batch


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=203, shards=1)


def train(trainer):
    """Trains the shard in one lease; returns what is recorded of it."""
    [(source, count)] = trainer.shards()
    trainer.closures.train(source.pack(), tf.constant([0, count, 3, 0], tf.int64))
    return trainer.progress.read()[0]


def held(trainer):
    """Parameters, slots and state as an update would find them."""
    store = trainer.store
    values = {
        (slice_.name, slice_.first): slice_.variable.numpy()
        for slice_ in store.slices()
        if not slice_.name.startswith("tables")
    }
    for group in store.groups:
        rows = sum(table.rows for table in group.layout.tables)
        pulled = group.pull(AskedIds(tf.range(rows, dtype=group.layout.id_dtype)), with_slots=True)
        values[group.layout.name, 0] = pulled.rows.numpy()
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.5),
        tfps.RowWiseAdagrad(0.1, clipnorm=0.5),
        *(
            pytest.param(optimizer, marks=pytest.mark.slow)
            for optimizer in (
                keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=0.5),
                keras.optimizers.Adagrad(0.05),
                keras.optimizers.AdamW(0.01, weight_decay=0.1),
                keras.optimizers.Adam(0.01, amsgrad=True),
                keras.optimizers.Lion(0.01),
                keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
            )
        ),
    ],
    ids=["adamw_clipped", "row_wise", "momentum", "adagrad", "adamw", "amsgrad", "lion", "rmsprop"],
)
def test_one_worker_alone_trains_as_with_a_push_for_every_step(manifest, optimizer):
    """Thirteen batches, the last one short, four at a time and one by itself."""
    is_of_rows = isinstance(optimizer, tfps.RowWiseAdagrad)
    rule = keras.optimizers.SGD(0.05, clipnorm=0.5) if is_of_rows else optimizer
    task = WithOptimizer(rule=rule, tables=optimizer)
    plain = Trainer(manifest, task, batch_size=16)
    local = Trainer(manifest, task, batch_size=16, mode=LocalSGD(sync_every=4))
    theirs, ours = train(plain), train(local)
    assert ours.steps == theirs.steps == local.steps() == plain.steps() == 13
    assert ours.loss_sum == pytest.approx(theirs.loss_sum, rel=1e-5)
    expected = held(plain)
    for key, values in held(local).items():
        np.testing.assert_allclose(values, expected[key], atol=1e-5, err_msg=key[0])


@pytest.mark.slow
def test_exchanges_are_timed_where_that_is_asked_for(manifest):
    trainer = Trainer(manifest, batch_size=16, mode=LocalSGD(sync_every=4))
    loop = LocalSgdLoop(trainer.step, trainer.store, trainer.progress, 1, 4, is_timed=True)
    trainer.closures.train_by(loop)
    [(source, count)] = trainer.shards()
    lease = tf.constant([0, count, 3, 0], tf.int64)
    began = time.monotonic()
    result = LeaseResult.unpack(trainer.closures.train(source.pack(), lease).numpy())
    exchanges, exchange_seconds, step_seconds = result.times
    assert (result.steps, exchanges) == (13, 3)  # the last batch is pushed by itself
    assert exchange_seconds > 0 < step_seconds
    assert exchange_seconds + step_seconds < time.monotonic() - began


@dataclasses.dataclass(frozen=True)
class Half(InHalfPrecision, WithOptimizer):
    """In float16, with a loss that is scaled."""


@pytest.mark.slow
def test_steps_that_overflow_change_nothing_but_the_scale_as_with_a_push_for_every_step(manifest):
    """From a scale at which the first steps overflow, some of them between good ones."""
    task, trained = Half(rule=keras.optimizers.Adam(0.01)), []
    for mode in (Async(), LocalSGD(sync_every=4)):
        trainer = Trainer(manifest, task, batch_size=16, mode=mode)
        trainer.store.loss_scale._values.assign([2.0**24, 0.0, 0.0])
        assert train(trainer).steps == 13
        trained.append(trainer)
    plain, local = trained
    scale, skipped = local.store.loss_scale.read()
    assert (scale, skipped) == plain.store.loss_scale.read()
    assert 0 < skipped < 13
    assert local.steps() == plain.steps() == 13 - skipped
    expected = held(plain)
    for key, values in held(local).items():
        np.testing.assert_allclose(values, expected[key], atol=1e-3, err_msg=key[0])


@dataclasses.dataclass(frozen=True)
class Scaled(WithOptimizer):
    """Gradients are as large as the numbers of the records, whatever the parameters are."""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        row = keras.layers.Embedding(self.vocabulary, self.dim, name="token_table")(token)
        hidden = keras.layers.Concatenate()([numbers, row])
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def compute_loss(self, features, labels, outputs):
        return keras.ops.mean(outputs[:, 0] * features["numbers"][:, 0])


def copy_of(trainer, steps, numbers, workers=2):
    """A worker's copy after some steps on records of the same numbers."""
    features = {"numbers": tf.fill([8, 4], numbers), "token": tf.range(8, dtype=tf.int64)}
    labels, draw = {"label": tf.zeros([8], tf.int64)}, tf.zeros([2], tf.int64)
    copy = LocalCopy(trainer.store, workers, [trainer.step.lookups(features, labels)] * steps)
    for number in range(steps):
        ready = Batch(features, labels, copy.pulled(number))
        copy.update(number, trainer.step.gradients(ready, draw)[1])
    return copy


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name for name in (*OPTIMIZERS, "adam_forgetful") if not name.startswith("ftrl")],
)
def test_a_worker_far_behind_leaves_squares_squares(manifest, name):
    """Large gradients, then small ones of a fast worker; a slow one has pulled in between."""
    kind, options = OPTIMIZERS.get(name, (keras.optimizers.Adam, {"beta_2": 0.5}))
    task = Scaled(rule=kind(**options))
    trainer = Trainer(manifest, task, parts=2, mode=LocalSGD(), row_updates="lazy")
    store = trainer.store

    @tf.function(autograph=False)
    def train(rounds, of_fast, of_slow):
        slow = copy_of(trainer, 2, of_slow)

        def train_fast(left):
            with tf.control_dependencies(copy_of(trainer, 2, of_fast).push()):
                return left - 1

        tf.while_loop(lambda left: left > 0, train_fast, [rounds])
        slow.push()

    def squares():
        slots, held = store.dense.rule.slots, whole(store)
        lines = held[store.groups[0].layout.name].reshape(-1, 1 + len(slots), 4)
        for k, (name, slot) in enumerate(slots.items()):
            if slot.is_square:
                yield held[f"dense/{name}"]
                yield lines[:, 1 + k]

    drawn = np.random.default_rng(0)
    train(tf.constant(12), tf.constant(1.0), tf.constant(1.0))
    train(tf.constant(40), tf.constant(0.001), tf.constant(0.05))
    for _ in range(10):
        sizes = 10 ** drawn.uniform(-4, 1, 2)
        train(tf.constant(drawn.integers(40)), *(tf.constant(size, tf.float32) for size in sizes))
        for values in squares():
            assert (values >= 0).all()
    assert all(np.isfinite(value).all() for value in held(trainer).values())


def test_weight_decay_puts_no_mask_of_all_parameters_into_the_graph(manifest):
    @dataclasses.dataclass(frozen=True)
    class Wide(Scaled):
        def build_model(self):
            numbers = keras.Input((4,), name="numbers", dtype="float32")
            token = keras.Input((), name="token", dtype="int64")
            hidden = keras.layers.Dense(2000)(numbers)
            hidden = keras.layers.Dense(500)(hidden)
            outputs = keras.layers.Dense(1)(hidden)
            return keras.Model({"numbers": numbers, "token": token}, outputs)

        def optimizer(self):
            rule = keras.optimizers.AdamW(0.001, weight_decay=0.01)
            rule.exclude_from_weight_decay(var_names=["bias"])
            return rule

    trainer = Trainer(manifest, Wide(), mode=LocalSGD())

    @tf.function(autograph=False)
    def train(numbers):
        copy_of(trainer, 1, numbers).push()

    graph = train.get_concrete_function(tf.TensorSpec([])).graph.as_graph_def()
    assert trainer.store.layout.dense.total > 1_000_000
    assert graph.ByteSize() < 1_000_000  # a mask would be of 4 bytes for each
