"""Small exported models of many kinds, and records for them."""

import dataclasses
import json

import keras
import numpy as np
import tensorflow as tf

import tfps
from configs.census import Census
from configs.criteo import Criteo
from tests.export_schema import schema
from tests.training_fixtures import Trainer
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.export.loaded_model import ExportedModel
from tfps.export.versions import write_warm_up
from tfps.layers.embedding import Embedding
from tfps.model.inputs import signature_specs, unpack_signature_inputs


@dataclasses.dataclass(frozen=True)
class Kinds(tfps.Task):
    """Two ragged features, a matrix, a string, and three outputs."""

    def features(self):
        return (
            Feature("tags", "int64", (None,), 20),
            Feature("notes", "string", (None,)),
            Feature("grid", "float32", (2, 2)),
            Feature("colour", "string"),
        )

    def label(self):
        return Feature("marks", "float32", (3,))

    def build_model(self):
        tags = keras.Input((None,), name="tags", dtype="int64", ragged=True)
        notes = keras.Input((None,), name="notes", dtype="string", ragged=True)
        grid = keras.Input((2, 2), name="grid")
        colour = keras.Input((), name="colour", dtype="string")
        known = keras.layers.StringLookup(vocabulary=["red", "grün"])(colour)
        parts = [
            Embedding(20, 4, "mean")(tags),
            Embedding(10, 4, "sum")(notes),
            keras.layers.Flatten()(grid),
            keras.layers.Embedding(3, 4)(known),
        ]
        hidden = keras.layers.Dense(8, "tanh")(keras.layers.Concatenate()(parts))
        return keras.Model([tags, notes, grid, colour], keras.layers.Dense(3)(hidden))

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(0.1)

    def predictions(self, outputs):
        return {
            "score": keras.ops.sigmoid(outputs[:, 0]),
            "both": outputs[:, 1:],
            "grid": keras.ops.stack([outputs, 2 * outputs], axis=1),
        }


TASKS = {
    "census": Census(),
    "criteo": Criteo(rows_per_table=50, dim=2, mlp=(4,)),
    "kinds": Kinds(),
}


def export_task(name, directory):
    """A task's model with its initial values, as a run would export it."""
    Trainer(None, task=TASKS[name], parts=1).export(directory)


class Hand(tf.Module):
    """A model that is a function of its features, with both signatures of an export."""

    def __init__(self, features, function, *variables):
        super().__init__()
        self.kept = variables
        specs = signature_specs(features)

        @tf.function(autograph=False)
        def serve(**inputs):
            return function(unpack_signature_inputs(inputs, features))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
        def serve_examples(serialized):
            return function(examples.parse(serialized, features)[0])

        self.asked_by = {
            "serving_default": serve.get_concrete_function(**specs),
            "serving_examples": serve_examples,
        }

    def export(self, directory, features, records=None):
        """Writes it as an export, with its warm-up requests where there are records."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        staged = directory.with_name(f"{directory.name}.tmp")
        tf.saved_model.save(self, str(staged), signatures=self.asked_by)
        (staged / "schema.json").write_text(json.dumps(schema(features)))
        if records is not None:
            write_warm_up(str(staged), features, records)
        staged.rename(directory)
        return directory


PICTURE = (Feature("picture", "string"),)


def brightness(values):
    """Of pictures, the mean of each colour."""

    def decoded(content):
        return tf.cast(tf.io.decode_image(content, channels=3, expand_animations=False), tf.float32)

    pictures = tf.map_fn(
        lambda content: tf.reduce_mean(decoded(content), axis=[0, 1]),
        values["picture"],
        fn_output_signature=tf.TensorSpec([3], tf.float32),
    )
    return {"predictions": pictures / 255.0}


def png(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), np.uint8)
    return tf.io.encode_png(pixels).numpy()


def export_pictures(directory):
    records = {"picture": tf.constant([png(seed) for seed in range(3)])}
    return Hand(PICTURE, brightness).export(directory, PICTURE, records)


X = (Feature("x", "float32"),)


def export_number(directory, number):
    """A model of which each output is its version's number, and large enough to take a moment."""
    one, rows = tf.Variable(float(number)), tf.Variable(tf.fill([1 << 18], float(number)))

    def function(values):
        at = tf.cast(values["x"], tf.int32)
        return {"first": one + 0 * values["x"], "rows": tf.gather(rows, at)}

    hand = Hand(X, function, one, rows)
    return hand.export(directory, X, {"x": tf.constant([0.0, 1.0])})


TEXTS = b"red", "grün".encode(), b"", b'a "b"\n\0'


def drawn(features, count, seed=0):
    """Some records, as tensors by feature name."""
    rng = np.random.default_rng(seed)
    found = {}
    for feature in features:
        sizes = rng.integers(0, 4, count) if feature.is_ragged else [feature.size] * count
        total = int(sum(sizes))
        if feature.dtype == "string":
            flat = [TEXTS[k] for k in rng.integers(0, len(TEXTS), total)]
        elif feature.dtype == "int64":
            flat = rng.integers(0, feature.vocabulary_size or 100, total)
        else:
            flat = rng.normal(size=total).astype(np.float32)
        values = tf.constant(flat, feature.dtype, [total])
        if feature.is_ragged:
            found[feature.name] = tf.RaggedTensor.from_row_lengths(values, sizes)
        else:
            found[feature.name] = tf.reshape(values, [count, *feature.shape])
    return found


def as_json(value):
    """A tensor of records as JSON has it."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_list()
    elif isinstance(value, tf.Tensor):
        value = value.numpy().tolist()
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def load(directory):
    return ExportedModel.load(str(directory))
