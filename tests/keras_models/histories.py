"""Recommendation by what somebody has seen before, in order."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tests.keras_models.case import DRAWN, YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import TokensAndPlaces, TransformerBlock
from tests.keras_models.signals import ids, noisy, numbers, shortened, truth, walks, yes_or_no
from tfps.data.feature import Feature

_KIND = "recommendation"
_ITEMS, _DIM = 120, 16

_SEEN = 12
_SESSION = (Feature("seen", "int64", (_SEEN,), _ITEMS),)


def _sessions(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """A label for every place: what is seen next, 0 where nothing is."""
    walk = shortened(generator, walks(generator, count, _SEEN + 1, _ITEMS), 4)
    following = walk[:, 1:]
    return {"seen": np.where(following > 0, walk[:, :-1], 0), "following": following}


def _sasrec() -> keras.Model:
    seen = inputs_of(_SESSION)["seen"]
    hidden = TokensAndPlaces(_ITEMS, _SEEN, 32, mask_zero=True)(seen)
    hidden = keras.layers.Dropout(0.1)(hidden)
    for _ in range(2):
        hidden = TransformerBlock(32, heads=2, units=32, causal=True)(hidden)
    model = keras.Model(seen, keras.layers.Dense(_ITEMS)(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(0.005, beta_2=0.98),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
        weighted_metrics=["sparse_categorical_accuracy"],
    )
    return model


def _last_of_sessions(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """The label is what is seen after the last place that is no zero."""
    walk = shortened(generator, walks(generator, count, _SEEN + 1, _ITEMS), 3)
    last = np.count_nonzero(walk, axis=1) - 1
    following = walk[np.arange(count), last]
    walk[np.arange(count), last] = 0
    return {"seen": walk[:, :-1], "following": following}


def _gru4rec() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((_SEEN,), name="seen", dtype="int64"),
            keras.layers.Embedding(_ITEMS, 32, mask_zero=True),
            keras.layers.GRU(32),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(_ITEMS, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.005),
        loss="sparse_categorical_crossentropy",
        metrics=[keras.metrics.SparseTopKCategoricalAccuracy(k=5, name="hit_5")],
    )
    return model


_BEFORE = 6
_RATING = (
    Feature("movies", "int64", (_BEFORE,), _ITEMS),
    Feature("stars", "float32", (_BEFORE,)),
    Feature("target", "int64", (), _ITEMS),
    Feature("age_group", "int64", (), 7),
)


def _ratings(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    movies, target = ids(generator, count, _ITEMS, _BEFORE), ids(generator, count, _ITEMS)
    stars, group = numbers(generator, count, _BEFORE), ids(generator, count, 7)
    quality = truth("quality of movies", _ITEMS)
    rating = 3.0 + quality[target] + 0.3 * truth("ages", 7)[group]
    return {
        "movies": movies,
        "stars": stars,
        "target": target,
        "age_group": group,
        "rating": noisy(generator, rating + stars.mean(axis=1), 0.2),
    }


def _behavior_sequence_transformer() -> keras.Model:
    inputs = inputs_of(_RATING)
    movie_rows = keras.layers.Embedding(_ITEMS, _DIM, name="movie")
    places = keras.layers.Embedding(_BEFORE, _DIM, name="place")
    behavior = movie_rows(inputs["movies"])
    behavior = behavior + places(ops.arange(_BEFORE, dtype="int64") + 0 * inputs["movies"])
    behavior = behavior * ops.expand_dims(inputs["stars"], -1)
    target = ops.expand_dims(movie_rows(inputs["target"]), 1)
    sequence = keras.layers.Concatenate(axis=1)([behavior, target])
    attended = keras.layers.MultiHeadAttention(num_heads=2, key_dim=_DIM // 2, dropout=0.1)(
        sequence, sequence
    )
    hidden = keras.layers.LayerNormalization()(sequence + keras.layers.Dropout(0.1)(attended))
    changed = keras.layers.Dense(_DIM)(keras.layers.LeakyReLU()(hidden))
    hidden = keras.layers.LayerNormalization()(hidden + changed)
    group = keras.layers.Embedding(7, 4, name="age_group_row")(inputs["age_group"])
    hidden = keras.layers.Concatenate()([keras.layers.Flatten()(hidden), group])
    for units in (32, 16):
        hidden = keras.layers.Dense(units)(hidden)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.LeakyReLU()(hidden)
        hidden = keras.layers.Dropout(0.1)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(
        optimizer=keras.optimizers.Adagrad(learning_rate=0.05),
        loss=keras.losses.MeanSquaredError(),
        metrics=[keras.metrics.MeanAbsoluteError()],
    )
    return model


_CLUSTERS = 8
_VIEW = (
    Feature("history", "int64", (8,), _ITEMS),
    Feature("candidate", "int64", (), _ITEMS),
)


def _views(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """A candidate is clicked more often the more of its cluster have been seen."""
    history = shortened(generator, 1 + ids(generator, count, _ITEMS - 1, 8), 1)
    candidate = 1 + ids(generator, count, _ITEMS - 1)
    is_like = (history % _CLUSTERS == candidate[:, None] % _CLUSTERS) & (history > 0)
    logits = 2.0 * is_like.sum(axis=1) - 1.5 + 1.5 * truth("appeal", _ITEMS)[candidate]
    return {
        "history": history,
        "candidate": candidate,
        "clicked": yes_or_no(generator, logits),
    }


class TargetAttention(keras.layers.Layer):
    """What has been seen, weighted by a network that compares each item with a candidate."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(32, activation="sigmoid")
        self.score = keras.layers.Dense(1)

    def call(self, seen: Any, candidate: Any, is_real: Any) -> Any:
        query = ops.broadcast_to(candidate[:, None, :], ops.shape(seen))
        compared = ops.concatenate([query, seen, query - seen, query * seen], axis=-1)
        scores = self.score(self.hidden(compared))[..., 0]
        return ops.sum(ops.where(is_real, scores, 0.0)[..., None] * seen, axis=1)


def _deep_interest_network() -> keras.Model:
    inputs = inputs_of(_VIEW)
    history, candidate = inputs["history"], inputs["candidate"]
    items, appeal = keras.layers.Embedding(_ITEMS, _DIM), keras.layers.Embedding(_ITEMS, 1)
    row = items(candidate)
    interest = TargetAttention()(items(history), row, ops.not_equal(history, 0))
    hidden = keras.layers.Concatenate()([interest, row, interest * row])
    for units in (32, 16):
        hidden = keras.layers.PReLU()(keras.layers.Dense(units)(hidden))
    clicked = ops.sigmoid(keras.layers.Dense(1)(hidden) + appeal(candidate))
    model = keras.Model([history, candidate], clicked)
    model.compile(
        optimizer=keras.optimizers.Adam(0.005), loss="binary_crossentropy", metrics=["AUC"]
    )
    return model


_CLICKS = (
    Feature("watched", "int64", (None,), _ITEMS),
    Feature("video", "int64", (), _ITEMS),
)


def _clicks(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Somebody has watched up to six videos, or none."""
    video = ids(generator, count, _ITEMS)
    watched = np.empty(count, object)
    for record in range(count):
        watched[record] = ids(generator, int(generator.integers(0, 7)), _ITEMS)
    taste = truth("tastes of watchers", _ITEMS)
    habit = np.array([taste[each].sum() for each in watched])
    logits = habit + 1.5 * truth("appeal of videos", _ITEMS)[video]
    return {"watched": watched, "video": video, "clicked": yes_or_no(generator, logits)}


class SummedHistory(keras.Model):
    """The summed rows of any number of videos, beside that of the next one, in a dense network."""

    def __init__(self) -> None:
        super().__init__()
        self.videos = keras.layers.Embedding(_ITEMS, _DIM, name="videos")
        self.next = keras.layers.Embedding(_ITEMS, _DIM, name="next_videos")
        self.dense = keras.layers.Dense(32, activation="relu")
        self.logit = keras.layers.Dense(1)

    def call(self, inputs: dict[str, Any]) -> Any:
        total = tf.reduce_sum(self.videos(inputs["watched"]), axis=1)
        return self.logit(self.dense(ops.concatenate([total, self.next(inputs["video"])], axis=1)))


def _summed_history() -> keras.Model:
    model = SummedHistory()
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.003),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
    )
    return model


CASES = (
    Case(
        "sasrec",
        _KIND,
        _SESSION,
        Feature("following", "int64", (_SEEN,), _ITEMS),
        _sessions,
        _sasrec,
        tolerance=DRAWN,
    ),
    Case(
        "gru4rec",
        _KIND,
        _SESSION,
        Feature("following", "int64", vocabulary=_ITEMS),
        _last_of_sessions,
        _gru4rec,
        tolerance=DRAWN,
    ),
    Case(
        "behavior_sequence_transformer",
        _KIND,
        _RATING,
        Feature("rating", "float32"),
        _ratings,
        _behavior_sequence_transformer,
        tolerance=DRAWN,
    ),
    Case(
        "deep_interest_network",
        _KIND,
        _VIEW,
        Feature("clicked", "int64", vocabulary=YES_OR_NO),
        _views,
        _deep_interest_network,
    ),
    Case(
        "summed_history",
        _KIND,
        _CLICKS,
        Feature("clicked", "int64", vocabulary=YES_OR_NO),
        _clicks,
        _summed_history,
    ),
)
