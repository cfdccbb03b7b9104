"""Models whose ids repeat in a batch, with `train.repeated_ids=each`, beside Keras's training."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.beside_keras import train_beside_keras
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules

WORDS, LENGTH, BATCH = 7, 6, 8


@dataclasses.dataclass(frozen=True)
class Pairs(Task):
    """A text and a ragged title, of the words of one table."""

    made: keras.optimizers.Optimizer

    def features(self):
        return (
            Feature("text", "int64", (LENGTH,), WORDS),
            Feature("title", "int64", (None,), WORDS),
        )

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        text = keras.Input((LENGTH,), name="text", dtype="int64")
        title = keras.Input((None,), name="title", dtype="int64", ragged=True)
        word = keras.layers.Embedding(WORDS, 4, name="word")
        parts = keras.ops.mean(word(text), 1), _Summed(name="summed")(word(title))
        return keras.Model([text, title], keras.layers.Dense(1)(keras.ops.add(*parts)))

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return type(self.made).from_config(self.made.get_config())


class _Summed(keras.layers.Layer):
    def call(self, ragged):
        return tf.reduce_sum(ragged, 1)

    def compute_output_spec(self, ragged):
        return keras.KerasTensor((ragged.shape[0], ragged.shape[2]))


def batches(count):
    generator = np.random.default_rng(0)
    for _ in range(count):
        lengths = generator.integers(0, 4, BATCH)
        words = generator.integers(0, WORDS, lengths.sum())
        title = tf.RaggedTensor.from_row_lengths(words, lengths)
        text = tf.constant(generator.integers(0, WORDS, (BATCH, LENGTH)))
        label = tf.constant(generator.normal(size=BATCH) * 5, tf.float32)
        yield {"text": text, "title": title}, label


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "sync_every", "row_updates"),
    [
        (keras.optimizers.Adam(0.01, clipnorm=0.5), 4, "keras"),
        (keras.optimizers.Adagrad(0.1), 1, "lazy"),
    ],
    ids=["local copies", "lazy"],
)
def test_each_occurrence_over_all_lookups_of_a_table_counts(optimizer, sync_every, row_updates):
    trained = train_beside_keras(
        Pairs(optimizer), list(batches(8)), sync_every, row_updates, repeated_ids="each"
    )
    for path, values in trained.theirs.items():
        np.testing.assert_allclose(trained.ours[path], values, atol=2e-5, err_msg=path)


def rules_of(optimizer, **options):
    task = Pairs(optimizer)
    return Rules.of(task, StatelessModel(task, 0, **options), repeated_ids="each")


def test_a_dense_table_is_refused_where_the_sum_would_train_it_otherwise():
    with pytest.raises(UserError, match=r"repeated_ids=each: word/embeddings is looked up by ids"):
        rules_of(keras.optimizers.Adagrad(), dense_table_bytes=1000)
    rules_of(keras.optimizers.SGD(0.1), dense_table_bytes=1000)


@pytest.mark.slow
def test_a_variance_that_would_be_negative_is_refused():
    with pytest.raises(UserError, match=r"'word/embeddings': optimizer rm_sprop: with centered"):
        rules_of(keras.optimizers.RMSprop(centered=True))
    rules_of(keras.optimizers.RMSprop(centered=True, global_clipnorm=1.0))
