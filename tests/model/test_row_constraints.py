"""Constraints of embedding layers, beside Keras, which applies them to all rows in every step."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.constraints import MaxNorm, MinMaxNorm, NonNeg, UnitNorm

from tests.beside_keras import train_beside_keras
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.layout import StoreLayout

ROWS, DIM, IDS, STEPS = 30, 4, 3, 8


@dataclasses.dataclass(frozen=True)
class Constrained(Task):
    """A number of some ids, by a table of each constraint."""

    constraints: tuple
    rule: keras.optimizers.Optimizer

    def features(self):
        return (Feature("ids", "int64", (IDS,), ROWS),)

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        ids = keras.Input((IDS,), name="ids", dtype="int64")
        rows = [
            keras.layers.Embedding(ROWS, DIM, embeddings_constraint=each, name=f"table{number}")(
                ids
            )
            for number, each in enumerate(self.constraints)
        ]
        joined = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
        return keras.Model(ids, keras.layers.Dense(1)(joined))

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return self.rule.from_config(self.rule.get_config())


def batches():
    """Of rows that no other record of the batch has, so that Keras squares the same gradients."""
    drawn = np.random.default_rng(2)
    ids = [drawn.permutation(ROWS)[: 2 * IDS].reshape(2, IDS) for _ in range(STEPS)]
    labels = drawn.normal(size=(STEPS, 2)).astype(np.float32)
    return [({"ids": tf.constant(a)}, tf.constant(b)) for a, b in zip(ids, labels, strict=True)]


SGD = keras.optimizers.SGD(0.1)
MOMENTUM = keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.01)
EACH = (UnitNorm(axis=1), MaxNorm(0.06, axis=-1), MinMaxNorm(0.05, 0.07, axis=[1]), NonNeg(), None)


@pytest.mark.parametrize(
    ("constraints", "rule", "sync_every"),
    [
        ((UnitNorm(axis=1), NonNeg()), SGD, 1),
        pytest.param(EACH, SGD, 1, marks=pytest.mark.slow),
        pytest.param((NonNeg(), None), MOMENTUM, 1, marks=pytest.mark.slow),
        pytest.param(EACH, keras.optimizers.Adagrad(0.05), 1, marks=pytest.mark.slow),
        pytest.param(EACH, SGD, 4, marks=pytest.mark.slow),
        pytest.param((NonNeg(), None), MOMENTUM, 4, marks=pytest.mark.slow),
    ],
)
def test_every_row_ends_where_keras_has_it(constraints, rule, sync_every):
    trained = train_beside_keras(Constrained(constraints, rule), batches(), sync_every)
    for path, value in trained.theirs.items():
        np.testing.assert_allclose(trained.ours[path], value, rtol=1e-5, atol=5e-6, err_msg=path)
    for table, constraint in zip(trained.model.tables, constraints, strict=True):
        rows = trained.ours[table.name]
        norms = np.linalg.norm(rows, axis=1)
        if isinstance(constraint, UnitNorm):
            np.testing.assert_allclose(norms, 1.0, atol=1e-5)
        if isinstance(constraint, NonNeg):
            assert rows.min() == 0.0
        if isinstance(constraint, MaxNorm) or constraint is None:
            assert (norms.max() <= 0.06) == (constraint is not None)


def test_tables_of_equal_constraints_are_one_group():
    task = Constrained((NonNeg(), NonNeg(), MaxNorm(axis=1), MaxNorm(3, axis=1)), SGD)
    model = StatelessModel(task, 0)
    layout = StoreLayout.of(model, Rules.of(task, model), 2)
    assert [len(group.layout.tables) for group in layout.groups] == [2, 1, 1]
    assert len({group.layout.name for group in layout.groups}) == 3


class Halved(keras.constraints.Constraint):
    """One of a user's own."""

    def __call__(self, w):
        return 0.5 * w


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("max_norm", "'table0': embeddings_constraint MaxNorm has axis=0, .* say axis=1"),
        (UnitNorm(axis=[0, 1]), r"UnitNorm has axis=\[0, 1\]"),
        (MinMaxNorm(rate=0.5, axis=1), "MinMaxNorm with rate=0.5 may change every row"),
        (Halved(), "Halved may change every row .* use keras.constraints.NonNeg"),
    ],
)
def test_what_is_not_known_to_look_at_one_row_at_a_time_is_refused(constraint, message):
    with pytest.raises(UserError, match=message):
        StatelessModel(Constrained((constraint,), SGD), 0)


def test_norms_of_rows_that_move_by_themselves_are_refused():
    task = Constrained((UnitNorm(axis=1),), keras.optimizers.Adam())
    model = StatelessModel(task, 0)
    named = "'table0/embeddings': embeddings_constraint UnitNorm with optimizer adam: .*Adagrad"
    with pytest.raises(UserError, match=named):
        Rules.of(task, model)
    assert Rules.of(task, model, "lazy").row_updates == "lazy"
