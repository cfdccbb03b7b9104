"""Models with embedding layers, trained on the ps."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.embedding_bags import (
    COMBINERS,
    DIM,
    RATE,
    ROWS,
    WIDTH,
    WORDS,
    coefficients,
    ones,
)
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.experiment.task import Task
from tfps.export.loaded_model import ExportedModel
from tfps.export.parameters import StoreParameters
from tfps.export.saved_model import export
from tfps.layers.embedding import Embedding
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step
from trainer.chief.exports import predict_sample


@dataclasses.dataclass(frozen=True)
class Bags(Task):
    """Every form of ids with every one of some combiners, in front of one dense layer."""

    combiners: tuple[str, ...] = COMBINERS

    def features(self):
        return (
            Feature("bag", "int64", (None,), ROWS),
            Feature("weight", "float32", (None,)),
            Feature("padded", "int64", (WIDTH,)),
            Feature("word", "string", (None,)),
            Feature("wild", "int64", (None,)),
        )

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        bag = keras.Input((None,), name="bag", dtype="int64", ragged=True)
        weight = keras.Input((None,), name="weight", ragged=True)
        padded = keras.Input((WIDTH,), name="padded", dtype="int64")
        word = keras.Input((None,), name="word", dtype="string", ragged=True)
        wild = keras.Input((None,), name="wild", dtype="int64", ragged=True)
        parts = []
        for combiner in self.combiners:
            shared = Embedding(ROWS, DIM, combiner, padding=-1, name=f"shared_{combiner}")
            weighted = Embedding(ROWS, DIM, combiner, name=f"weighted_{combiner}")
            words = Embedding(ROWS, DIM, combiner, name=f"words_{combiner}")
            default = Embedding(
                ROWS - 1, DIM, combiner, out_of_range="default", name=f"default_{combiner}"
            )
            parts += [
                keras.layers.Concatenate()([shared(bag), shared(padded)]),
                weighted(bag, weights=weight),
                words(word),
                default(wild),
            ]
        outputs = keras.layers.Dense(1, name="dense")(keras.layers.Concatenate()(parts))
        return keras.Model([bag, weight, padded, word, wild], outputs)

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(RATE)

    def predictions(self, outputs):
        return outputs[:, 0]


def records(seed, count=8, most=3):
    random = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        bag, padded, word, wild = (random.integers(0, most + 1) for _ in range(4))
        result.append(
            {
                "bag": random.integers(0, ROWS, bag).tolist(),
                "weight": random.normal(0.5, 1.0, bag).astype(np.float32).tolist(),
                "padded": [*random.integers(0, ROWS, padded).tolist(), *[-1] * (WIDTH - padded)],
                "word": random.choice(np.array(WORDS, object), word).tolist(),
                "wild": random.integers(-5, ROWS + 5, wild).tolist(),
                "label": float(random.normal()),
            }
        )
    return result


BATCHES = [records(0), records(1, most=0), records(2), records(3, count=3)]


def tables_by_numpy(combiners, tables, kernel, bias):
    """Trains the model of `Bags` by SGD, written out; changes the arrays it is given."""
    for batch in BATCHES:
        column = {name: [record[name] for record in batch] for name in batch[0]}
        padded = [[i for i in bag if i >= 0] for bag in column["padded"]]
        word = [
            tf.strings.to_hash_bucket_fast(tf.constant(w, tf.string), ROWS).numpy().tolist()
            for w in column["word"]
        ]
        wild = [[i if 0 <= i < ROWS - 1 else ROWS - 1 for i in bag] for bag in column["wild"]]
        uses = []
        for combiner in combiners:
            uses += [
                (f"shared_{combiner}", column["bag"], ones(column["bag"]), combiner),
                (f"shared_{combiner}", padded, ones(padded), combiner),
                (f"weighted_{combiner}", column["bag"], column["weight"], combiner),
                (f"words_{combiner}", word, ones(word), combiner),
                (f"default_{combiner}", wild, ones(wild), combiner),
            ]
        counted = [(name, coefficients(*rest)) for name, *rest in uses]
        inputs = np.concatenate([by @ tables[name] for name, by in counted], axis=1)
        error = inputs @ kernel + bias - np.array(column["label"])[:, None]
        slope = 2 * error / len(batch)
        of_inputs = np.split(slope @ kernel.T, len(uses), axis=1)
        kernel -= RATE * inputs.T @ slope
        bias -= RATE * slope.sum(axis=0)
        for (name, by), gradient in zip(counted, of_inputs, strict=True):
            tables[name] -= RATE * by.T @ gradient


class Run:
    """A model's parameters over some parts, and its training step."""

    def __init__(self, task, parts, **options):
        self.task = task
        self.model = StatelessModel(task, 0, **options)
        rules = Rules.of(task, self.model)
        self.store = ParameterStore(self.model, rules, ["/device:CPU:0"] * parts, 0)
        step = Step(task, self.model, self.store)
        signature = [tf.TensorSpec([None], tf.string)]

        @tf.function(input_signature=signature, autograph=False)
        def train(serialized):
            batch = step.pull(*examples.parse(serialized, task.features(), task.labels()))
            return step.train(batch, tf.zeros([2], tf.int64))

        @tf.function(input_signature=signature, autograph=False)
        def predict(serialized):
            return step.predict(*examples.parse(serialized, task.features(), task.labels()))[1][
                "predictions"
            ]

        self.train, self.predict = train, predict

    def encoded(self, batch):
        features, labels = self.task.features(), self.task.labels()
        return tf.constant([examples.encode(record, features, labels) for record in batch])

    def export(self, path):
        parameters = StoreParameters(self.model, self.store)
        export(self.task, parameters, str(path), predict_sample(self.task, parameters, None))

    def tables(self):
        named = enumerate(self.model.tables)
        return {table.name.split("/")[0]: self.store.read_table(i) for i, table in named}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("combiners", "parts"),
    [
        (("mean",), 2),
        pytest.param(COMBINERS, 1, marks=pytest.mark.slow),
        pytest.param(COMBINERS, 2, marks=pytest.mark.slow),
    ],
)
def test_training_every_form_on_the_ps_equals_numpy_and_so_does_the_export(
    combiners, parts, tmp_path
):
    run = Run(Bags(combiners), parts)
    kernel, bias = (value.astype(np.float64) for value in run.store.read_dense())
    expected = {name: rows.astype(np.float64) for name, rows in run.tables().items()}
    assert len(expected) == 4 * len(combiners)
    tables_by_numpy(combiners, expected, kernel, bias)
    for batch in BATCHES:
        run.train(run.encoded(batch))
    for name, rows in run.tables().items():
        np.testing.assert_allclose(rows, expected[name], atol=2e-6, err_msg=name)
    np.testing.assert_allclose(run.store.read_dense()[0], kernel, atol=2e-6)

    if parts == 2:
        run.export(tmp_path / "export")
        exported = ExportedModel.load(str(tmp_path / "export"))
        for batch in BATCHES:
            inputs, _ = examples.parse(run.encoded(batch), run.task.features())
            predictions = exported.predict(inputs)["predictions"]
            np.testing.assert_allclose(
                predictions, run.predict(run.encoded(batch)), rtol=0, atol=1e-6
            )


def test_only_real_ids_are_looked_up():
    combiners = ("sum", "mean")
    run, batch = Run(Bags(combiners), 1), BATCHES[0]
    model = run.model
    features, _ = examples.parse(run.encoded(batch), run.task.features())
    asked = model.lookups(features, training=True)
    assert len(asked) == 5 * len(combiners)
    by_name = [(model.tables[lookup.table].name, lookup.ids.numpy().tolist()) for lookup in asked]
    padded = [i for record in batch for i in record["padded"] if i >= 0]
    assert by_name.count(("shared_sum/table/embeddings", padded)) == 1
    positive = [
        i for record in batch for i, w in zip(record["bag"], record["weight"], strict=True) if w > 0
    ]
    assert ("weighted_mean/table/embeddings", positive) in by_name


def _weigh(rows, weights):
    return rows * weights[..., tf.newaxis]


class Pooled(keras.Model):
    """A user's own code on ragged tensors, with Keras's own layer."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(ROWS, DIM, embeddings_initializer="ones")
        self.dense = keras.layers.Dense(1)

    def call(self, inputs, training=False):
        rows = self.table(inputs["bag"])
        # Without broadcasting of ragged tensors, which costs seconds to trace.
        weighted = tf.ragged.map_flat_values(_weigh, rows, inputs["weight"])
        return self.dense(tf.reduce_sum(weighted, axis=1))


@dataclasses.dataclass(frozen=True)
class PooledTask(Bags):
    def features(self):
        return super().features()[:2]

    def build_model(self):
        return Pooled()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"dense_table_bytes": ROWS * DIM * 4}, marks=pytest.mark.slow)],
)
def test_a_subclassed_model_with_ragged_tensors_of_its_own(options, tmp_path):
    run = Run(PooledTask(), 2, **options)
    assert len(run.model.tables) == (0 if options else 1)
    for batch in BATCHES:
        run.train(run.encoded(batch))
    run.export(tmp_path / "export")
    exported = ExportedModel.load(str(tmp_path / "export"))
    inputs, _ = examples.parse(run.encoded(BATCHES[0]), run.task.features())
    expected = run.predict(run.encoded(BATCHES[0]))
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(exported.predict(inputs)["predictions"], expected, rtol=0, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Constant(Bags):
    """Tables that begin alike wherever they are; a plain Keras layer, too."""

    def features(self):
        return (super().features()[0], super().features()[2])

    def build_model(self):
        bag = keras.Input((None,), name="bag", dtype="int64", ragged=True)
        padded = keras.Input((WIDTH,), name="padded", dtype="int64")
        mean = Embedding(ROWS, DIM, "mean", "ones", name="mean")
        plain = keras.layers.Embedding(ROWS, 2, "ones", name="plain")
        rows = plain(keras.ops.maximum(padded, 0))
        parts = [mean(bag), mean(keras.ops.maximum(padded, 0)), keras.layers.Flatten()(rows)]
        outputs = keras.layers.Dense(1, name="dense")(keras.layers.Concatenate()(parts))
        return keras.Model([bag, padded], outputs)


@pytest.mark.slow
def test_tables_that_stay_dense_are_trained_alike(recwarn):
    """SGD does the same to rows of a table and to a whole one whose other rows have no gradient."""
    runs = [Run(Constant(), 2, dense_table_bytes=limit) for limit in (0, ROWS * 2 * 4, 1 << 20)]
    assert [len(run.model.tables) for run in runs] == [2, 1, 0]
    for batch in BATCHES:
        losses = [float(run.train(run.encoded(batch))) for run in runs]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
    values = [
        {
            **{v.path: x for v, x in zip(run.model.dense, run.store.read_dense(), strict=True)},
            **{t.name: run.store.read_table(i) for i, t in enumerate(run.model.tables)},
        }
        for run in runs
    ]
    assert np.ptp(values[0]["mean/table/embeddings"]) > 0.01
    for other in values[1:]:
        assert other.keys() == values[0].keys()
        for path, value in values[0].items():
            np.testing.assert_allclose(other[path], value, atol=1e-6, err_msg=path)
    assert not [warning for warning in recwarn if "IndexedSlices" in str(warning.message)]
