"""Optimizers that differ by table, in a whole model."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.training_fixtures import save, train_with
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

DATA = ({"records": 1},)
IDS = ("user", "item", "shop")


@dataclasses.dataclass(frozen=True)
class Shopping(Task):
    """Three tables of one dimension; `shop` has another optimizer than all the rest."""

    shop_optimizer: str = "SGD"

    def features(self):
        return tuple(Feature(name, "int64", (), 30) for name in IDS)

    def label(self):
        return Feature("bought", "float32")

    def build_model(self):
        inputs = [keras.Input((), name=name, dtype="int64") for name in IDS]
        rows = [keras.layers.Embedding(30, 4, name=f"{x.name}_table")(x) for x in inputs]
        hidden = keras.layers.Dense(6, "tanh", name="hidden")(keras.layers.concatenate(rows))
        return keras.Model(inputs, keras.layers.Dense(1, name="output")(hidden))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        adagrad = keras.optimizers.Adagrad(0.1, weight_decay=0.2, global_clipnorm=0.05)
        adagrad.exclude_from_weight_decay(var_names=["bias", "_table"])
        return adagrad

    def table_optimizer(self, table):
        if table.name.startswith("shop_table"):
            home = tfps if self.shop_optimizer == "RowWiseAdagrad" else keras.optimizers
            return getattr(home, self.shop_optimizer)(0.5, clipnorm=0.01)
        return self.optimizer()


def make(task, parts=2, seed=0):
    model = StatelessModel(task, seed)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, seed)
    return model, store, train_with(Step(task, model, store))


def batches(count):
    generator = np.random.default_rng(4)
    for _ in range(count):
        features = {name: tf.constant(generator.integers(0, 30, 20)) for name in IDS}
        yield features, tf.constant(generator.integers(0, 2, 20).astype("f4"))


def train(step, count):
    for features, label in batches(count):
        step(features, {"bought": label}, tf.constant([0, 0], tf.int64))


def whole(store):
    """Every logical tensor of a store, slots included."""
    tensors = {}
    for slice_ in sorted(store.slices(), key=lambda slice_: slice_.first):
        tensors.setdefault(slice_.name, []).append(slice_.variable.numpy())
    return {name: np.concatenate(parts) for name, parts in tensors.items()}


@pytest.mark.quick("RowWiseAdagrad")
@pytest.mark.parametrize("shop_optimizer", ["SGD", "RowWiseAdagrad"])
def test_training_equals_keras_own_with_the_same_two_optimizers(shop_optimizer):
    """Neither optimizer changes rows whose gradient is 0, and no table decays: lazy is eager."""
    task = Shopping(shop_optimizer)
    model, store, step = make(task)
    keras.utils.clear_session()
    theirs = task.build_model()
    dense = dict(zip((v.path for v in model.dense), store.read_dense(), strict=True))
    tables = {t.name: store.read_table(k) for k, t in enumerate(model.tables)}
    for variable in theirs.variables:
        variable.assign({**dense, **tables}[variable.path])
    shop = [v for v in theirs.variables if v.path == "shop_table/embeddings"]
    rest = [v for v in theirs.variables if v.path != "shop_table/embeddings"]
    optimizers = [(task.optimizer(), rest), (task.table_optimizer(model.tables[2]), shop)]

    @tf.function(autograph=False)
    def train_theirs(features, label):
        with tf.GradientTape() as tape:
            loss = task.loss()(label, theirs(features, training=True))
        found = tape.gradient(loss, [[v.value for v in mine] for _, mine in optimizers])
        for (optimizer, mine), gradients in zip(optimizers, found, strict=True):
            # Summed by row, as on the ps: Keras takes norms of rows that occur twice as they are.
            optimizer.apply([tf.convert_to_tensor(gradient) for gradient in gradients], mine)

    for optimizer, mine in optimizers:
        optimizer.build(mine)
    for features, label in batches(30):
        train_theirs(features, label)
    train(step, 30)
    dense = dict(zip((v.path for v in model.dense), store.read_dense(), strict=True))
    tables = {t.name: store.read_table(k) for k, t in enumerate(model.tables)}
    for variable in theirs.variables:
        ours = {**dense, **tables}[variable.path]
        np.testing.assert_allclose(ours, variable.numpy(), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_slots_of_every_group_are_restored_onto_another_number_of_ps(tmp_path):
    task = Shopping("RMSprop")
    _, first, step = make(task)
    train(step, 5)
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, first, QueueState(), DATA)
    _, second, second_step = make(task, parts=3, seed=1)
    restore(directory.latest(), second, DATA)
    before, after = whole(first), whole(second)
    assert set(before) == {
        *("dense", "dense/accumulator", "tables_dim4"),
        *("tables_dim4_1", "tables_dim4_1/last_update"),
    }
    for name, values in before.items():
        assert np.array_equal(values, after[name]), name
    for one in (step, second_step):
        train(one, 5)
    before, after = whole(first), whole(second)
    for name, values in before.items():
        # Sums over the rows of another number of ps are rounded in another order.
        np.testing.assert_allclose(values, after[name], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_checkpoint_of_tables_with_another_optimizer_is_refused(tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, make(Shopping("RMSprop"))[1], QueueState(), DATA)
    with pytest.raises(UserError, match="tables_dim4_1 rule was RmsProp, is Sgd"):
        restore(directory.latest(), make(Shopping())[1], DATA)


def test_equal_optimizers_share_a_group():
    model = StatelessModel(Shopping(), 0)
    rules = Rules.of(Shopping(), model)
    assert rules.tables[0] == rules.tables[1] == rules.dense
    assert rules.tables[2] != rules.dense
    assert rules.tables_decay == (False, False, False)
    assert dict(zip((v.path for v in model.dense), rules.dense_decays, strict=True)) == {
        "hidden/kernel": True,
        "hidden/bias": False,
        "output/kernel": True,
        "output/bias": False,
    }


def test_variables_can_be_excluded_from_weight_decay_themselves():
    """Fails when Keras keeps what `exclude_from_weight_decay` was told in another way."""

    @dataclasses.dataclass(frozen=True)
    class Excluding(Shopping):
        def optimizer(self):
            adamw = keras.optimizers.AdamW(0.1)
            adamw.exclude_from_weight_decay(var_list=[model.dense[2]], var_names=["^user"])
            return adamw

    model = StatelessModel(Shopping(), 0)
    rules = Rules.of(Excluding(), model)
    assert rules.dense_decays == (True, True, False, True)
    assert rules.tables_decay == (False, True, False)  # the shop's has no weight decay


def test_an_optimizer_of_a_table_is_refused_with_the_table_s_name():
    with pytest.raises(UserError, match=r"table 'shop_table/embeddings': optimizer Nadam"):
        Rules.of(Shopping("Nadam"), StatelessModel(Shopping(), 0))


def test_an_optimizer_of_rows_is_refused_for_dense_parameters():
    class Rows(Shopping):
        def optimizer(self):
            return tfps.RowWiseAdagrad()

    with pytest.raises(UserError, match="dense parameters have no rows: return it from table_"):
        make(Rows())
