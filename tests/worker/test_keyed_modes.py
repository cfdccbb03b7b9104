"""In every mode, tables without vocabularies train as the same tables with one do."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.training_fixtures import Trainer, dataset
from tests.worker.test_barrier_loop import BATCH, Plain, barrier_of, steps_of
from tfps.experiment.mode import Async, Bounded, LocalSGD, Sync

IDS = np.arange(20)
ROWS = 200  # that each ps has enough of
MEMBERS, ROUNDS = 2, 12


@dataclasses.dataclass(frozen=True)
class Tokens(Plain):
    """Three tables that begin with zeros, two of which have keys if that is asked for.

    Attributes:
        has_keys: Whether they have.
    """

    has_keys: bool = False

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        rows = [
            self._table(4, "first")(token),
            keras.layers.Embedding(self.vocabulary, 3, "zeros", name="plain")(token),
            self._table(4, "second")(token // 2),
        ]
        hidden = keras.layers.Concatenate()([numbers, *rows])
        hidden = keras.layers.Dense(self.units, "relu")(hidden)
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def _table(self, dim, name):
        if self.has_keys:
            return tfps.DynamicEmbedding(dim, ROWS, embeddings_initializer="zeros", name=name)
        return keras.layers.Embedding(self.vocabulary, dim, "zeros", name=name)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=MEMBERS * 203, shards=MEMBERS)


def lease(trainer):
    """Trains the first shard in one lease."""
    source, count = trainer.shards()[0]
    trainer.closures.train(source.pack(), tf.constant([0, count, 3, 0], tf.int64))


def alone(trainer):
    """A member that waits for nobody else trains it."""
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0])
        assert steps_of(begin(0, count=203)) == (1, -(-203 // BATCH))


def rounds(trainer):
    with barrier_of(trainer) as begin:
        trainer.barrier.expect(range(MEMBERS))
        closures = [begin(member, count=ROUNDS * BATCH) for member in range(MEMBERS)]
        assert [steps_of(closure) for closure in closures] == [(1, ROUNDS)] * MEMBERS


def values_of(trainer):
    """The dense parameters, and the rows of each table."""
    store = trainer.store
    tables = [store.read_rows(table, IDS) for table in range(3)]
    return [*store.read_dense(), *tables]


CASES = {
    "async": (lease, {"mode": Async()}),
    "ahead": (lease, {"mode": Async(), "pipeline_depth": 2, "unroll": 3}),
    "local_sgd": (lease, {"mode": LocalSGD(sync_every=4)}),
    "sync": (rounds, {"mode": Sync(), "members": MEMBERS}),
    "bounded": (alone, {"mode": Bounded(max_staleness=2), "members": 1}),
}


# Each pair of a mode, a clipping and a number of parts is in one of them: all three together would
# take three times as long.
CLIPPED = {
    "unclipped": {},
    "clipnorm": {"clipnorm": 0.02},
    "global_clipnorm": {"global_clipnorm": 0.05},
}
TRIPLES = [
    pytest.param(case, clip, 1 + (at + number) % 3, id=f"{case}-{name}")
    for at, case in enumerate(CASES)
    for number, (name, clip) in enumerate(CLIPPED.items())
]


@pytest.mark.quick("async-clipnorm")
@pytest.mark.parametrize(("case", "clip", "parts"), TRIPLES)
def test_a_table_trains_as_one_with_a_vocabulary(manifest, case, clip, parts):
    train, settings = CASES[case]
    trained = []
    for has_keys in (True, False):
        rule = keras.optimizers.Adagrad(0.1, **clip)
        task = Tokens(rule=rule, has_keys=has_keys)
        trainer = Trainer(manifest, task, parts=parts, batch_size=BATCH, **settings)
        before = values_of(trainer)
        train(trainer)
        trained.append(values_of(trainer))
        for now, then in zip(trained[-1], before, strict=True):
            assert np.abs(now - then).max() > 1e-3
    for ours, theirs in zip(*trained, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
