"""Rows that come sorted, as sources of data give them, and the config of a model for each kind."""

import dataclasses
import pathlib

import keras
import numpy as np

import tfps
from tfps.data.converters import integer, number

COUNT = 24_000
KINDS = ("ratings", "photos", "clicks")
_COLOURS = tuple(f"colour_{place}" for place in range(8))
_CLASSES = {"ratings": 2, "photos": 12, "clicks": 2}


@dataclasses.dataclass(frozen=True)
class SortedRows(tfps.Task):
    """A label of some classes, told from ids and numbers.

    Attributes:
        kind: `ratings` of movies by users, `photos` of things, or `clicks` on adverts.
    """

    kind: str = "ratings"

    def features(self):
        return {
            "ratings": (
                tfps.Feature("user", "int64", vocabulary=400),
                tfps.Feature("movie", "int64", vocabulary=200),
            ),
            "photos": (
                tfps.Feature("colours", "float32", (len(_COLOURS),)),
                tfps.Feature("width", "float32"),
            ),
            "clicks": (
                tfps.Feature("day", "float32"),
                tfps.Feature("hour", "int64", vocabulary=24),
                tfps.Feature("advert", "int64", vocabulary=50),
            ),
        }[self.kind]

    def label(self):
        return tfps.Feature("label", "int64", vocabulary=_CLASSES[self.kind])

    def build_model(self):
        inputs, parts = {}, []
        for each in self.features():
            given = keras.Input(each.shape, name=each.name, dtype=each.dtype)
            if each.vocabulary:
                parts.append(keras.layers.Embedding(each.vocabulary, 8)(given))
            else:
                parts.append(keras.layers.Reshape((each.size,))(given))
            inputs[each.name] = given
        hidden = keras.layers.Concatenate()(parts)
        hidden = keras.layers.Dense(16, activation="relu")(hidden)
        return keras.Model(inputs, keras.layers.Dense(_CLASSES[self.kind])(hidden))

    def loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adam(0.01)

    def predictions(self, outputs):
        return keras.ops.softmax(outputs)

    def rows(self):
        columns, fields = [], {}
        for each in (*self.features(), self.label()):
            names = _COLOURS if each.name == "colours" else (each.name,)
            convert = integer if each.dtype == "int64" else number
            fields[each.name] = tfps.Field(names, convert)
            columns.extend(names)
        return tfps.RowFormat(columns=tuple(columns), delimiter=",", fields=fields)


def write_rows(path: pathlib.Path, kind: str, seed: int) -> None:
    """Writes rows of a kind in the order of their source."""
    draw = np.random.default_rng(seed)
    columns = {"ratings": _ratings, "photos": _photos, "clicks": _clicks}[kind](draw)
    np.savetxt(path, np.column_stack(columns), fmt="%.6g", delimiter=",")


def _ratings(draw):
    """By user, and each user's by time: as in a file of ratings."""
    user, movie = np.repeat(np.arange(400), COUNT // 400), draw.integers(0, 200, COUNT)
    likes = np.sin(user * 1.7) * np.cos(movie * 2.3)  # some users like what others do not
    return user, movie, (likes + draw.normal(0, 0.2, COUNT) > 0).astype(int)


def _photos(draw):
    """Class after class: as folders of images are read."""
    kind = np.repeat(np.arange(12), COUNT // 12)
    colours = np.cos(np.outer(kind, np.arange(1, 9))) + draw.normal(0, 0.7, (COUNT, 8))
    return colours, draw.random(COUNT), kind


def _clicks(draw):
    """In the order of time: as servers log them."""
    day = np.sort(draw.random(COUNT) * 10)
    advert = draw.integers(0, 50, COUNT)
    rate = 0.3 + 0.3 * np.sin(advert)
    return day, (day * 24).astype(int) % 24, advert, (draw.random(COUNT) < rate).astype(int)


def get_config():
    return tfps.Experiment("sorted", SortedRows(), train=tfps.Train(batch_size=256))
