"""The embedding layers of keras-rs, beside Keras: their tables are tables on the ps."""

import dataclasses

import keras
import keras_rs
import numpy as np
import tensorflow as tf

from tests.beside_keras import train_beside_keras
from tfps.data.feature import Feature
from tfps.experiment.task import Task

ROWS, IDS, RECORDS = 20, 3, 4
LENGTHS = [2, 0, 3, 1]


@dataclasses.dataclass(frozen=True)
class Basket(Task):
    """A number of a basket, of what has lately been looked at, and of a shop."""

    def features(self):
        return (
            Feature("basket", "int64", (IDS,), ROWS),
            Feature("amounts", "float32", (IDS,)),
            Feature("seen", "int64", (None,), ROWS),
            Feature("shop", "int64", (), ROWS),
        )

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        basket = keras.Input((IDS,), name="basket", dtype="int64")
        amounts = keras.Input((IDS,), name="amounts")
        seen = keras.Input((None,), name="seen", dtype="int64", ragged=True)
        shop = keras.Input((), name="shop", dtype="int64")
        mean, total, root = (
            keras_rs.layers.EmbedReduce(ROWS, 4, combiner=combiner, name=combiner)
            for combiner in ("mean", "sum", "sqrtn")
        )
        by_table = self.distributed()({"basket": basket, "shop": shop, "near": shop})
        parts = [mean(basket), mean(seen), total(seen), total(basket, amounts)]
        parts += [root(basket, amounts), mean(shop), *by_table.values()]
        outputs = keras.layers.Dense(1, name="dense")(keras.layers.Concatenate()(parts))
        return keras.Model([basket, amounts, seen, shop], outputs)

    def distributed(self):
        """Two features share a table."""
        shared = keras_rs.layers.TableConfig("shared", ROWS, 4, combiner="sum", optimizer="sgd")
        alone = keras_rs.layers.TableConfig("alone", ROWS, 2)
        tables = {"basket": (shared, (IDS,)), "shop": (shared, ()), "near": (alone, ())}
        return keras_rs.layers.DistributedEmbedding(
            {
                name: keras_rs.layers.FeatureConfig(
                    name, table, (None, *shape), (None, table.embedding_dim)
                )
                for name, (table, shape) in tables.items()
            },
            name="distributed",
        )

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(0.1)


def batches():
    drawn = np.random.default_rng(3)

    def ids(*shape):
        return tf.constant(drawn.integers(0, ROWS, shape))

    def numbers(*shape):
        return tf.constant(drawn.normal(size=shape), tf.float32)

    return [
        (
            {
                "basket": ids(RECORDS, IDS),
                "amounts": numbers(RECORDS, IDS) + 2.0,
                "seen": tf.RaggedTensor.from_row_lengths(ids(sum(LENGTHS)), LENGTHS),
                "shop": ids(RECORDS),
            },
            numbers(RECORDS),
        )
        for _ in range(3)
    ]


def test_every_row_ends_where_keras_has_it():
    trained = train_beside_keras(Basket(), batches())
    names = ["distributed/alone", "distributed/shared", "mean", "sqrtn", "sum"]
    tables = sorted(table.name for table in trained.model.tables)
    assert tables == [f"{name}/embeddings" for name in names]
    assert [each.path for each in trained.model.dense] == ["dense/kernel", "dense/bias"]
    for path, value in trained.theirs.items():
        np.testing.assert_allclose(trained.ours[path], value, atol=2e-6, err_msg=path)
