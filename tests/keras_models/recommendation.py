"""Factorizations of who likes what, and a search for what somebody buys."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import mlp
from tests.keras_models.signals import ids, noisy, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "recommendation"
_DIM = 8

_USERS, _MOVIES = 400, 250
_PAIR = (
    Feature("user", "int64", (1,), _USERS),
    Feature("movie", "int64", (1,), _MOVIES),
)


def _affinity(user: np.ndarray, movie: np.ndarray) -> np.ndarray:
    taste, style = truth("taste", _USERS, 2)[user], truth("style", _MOVIES, 2)[movie]
    liking = truth("lenience", _USERS)[user] + truth("quality", _MOVIES)[movie]
    return liking + 0.5 * (taste * style).sum(axis=-1)


def _ratings(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    user, movie = ids(generator, count, _USERS, 1), ids(generator, count, _MOVIES, 1)
    stars = 3.0 + 0.5 * _affinity(user, movie)[:, 0]
    return {"user": user, "movie": movie, "stars": noisy(generator, stars, 0.3)}


def _likes(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    user, movie = ids(generator, count, _USERS, 1), ids(generator, count, _MOVIES, 1)
    liked = yes_or_no(generator, 1.5 * _affinity(user, movie)[:, 0])
    return {"user": user, "movie": movie, "liked": liked}


class Factors(keras.Model):
    """Vectors of users and movies, multiplied, and a bias of each, squeezed into zero to six."""

    def __init__(self) -> None:
        super().__init__(name="factors")
        self.users = keras.layers.Embedding(
            _USERS, _DIM, embeddings_initializer="he_normal", name="users"
        )
        self.movies = keras.layers.Embedding(
            _MOVIES, _DIM, embeddings_initializer="he_normal", name="movies"
        )
        self.user_bias = keras.layers.Embedding(_USERS, 1, name="user_bias")
        self.movie_bias = keras.layers.Embedding(_MOVIES, 1, name="movie_bias")
        self.flatten = keras.layers.Flatten()

    def call(self, inputs: dict[str, Any]) -> Any:
        user, movie = inputs["user"], inputs["movie"]
        product = ops.sum(self.users(user) * self.movies(movie), axis=-1)
        biases = self.flatten(self.user_bias(user) + self.movie_bias(movie))
        return 6.0 * ops.sigmoid(product + biases)


def _matrix_factorization() -> keras.Model:
    model = Factors()
    model.compile(
        optimizer=keras.optimizers.SGD(1.0, momentum=0.9),
        loss=keras.losses.MeanSquaredError(),
        metrics=["mean_absolute_error"],
    )
    return model


def _neural_matrix_factorization() -> keras.Model:
    user, movie = inputs_of(_PAIR).values()

    def row(ids_in: Any, size: int, name: str) -> Any:
        table = keras.layers.Embedding(size, _DIM, embeddings_initializer="normal", name=name)
        return keras.layers.Flatten()(table(ids_in))

    product = keras.layers.Multiply()(
        [row(user, _USERS, "user_factors"), row(movie, _MOVIES, "movie_factors")]
    )
    both = keras.layers.Concatenate()(
        [row(user, _USERS, "user_deep"), row(movie, _MOVIES, "movie_deep")]
    )
    hidden = keras.layers.Concatenate()([product, mlp(both, (32, 16, 8))])
    liked = keras.layers.Dense(1, activation="sigmoid", kernel_initializer="lecun_uniform")(hidden)
    model = keras.Model([user, movie], liked)
    model.compile(
        optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"]
    )
    return model


_GOODS = 150
_PURCHASE = (
    Feature("buyer", "int64", (), 200),
    Feature("month", "int64", (), 12),
    Feature("good", "int64", (), _GOODS),
)


def _purchases(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Each buyer likes three goods, of which the month says one, and buys another now and then."""
    buyer, month = ids(generator, count, 200), ids(generator, count, 12)
    liked = np.argsort(truth("goods of buyers", 200, _GOODS), axis=1)[buyer, month // 4]
    good = np.where(generator.random(count) < 0.9, liked, ids(generator, count, _GOODS))
    return {"buyer": buyer, "month": month, "good": good, "bought": good}


class TwoTowers(keras.Model):
    """Vectors of who asks and of what is asked for; other goods of a batch are wrong answers."""

    def __init__(self) -> None:
        super().__init__()
        self.buyers = keras.layers.Embedding(200, 16)
        self.months = keras.layers.Embedding(12, 16)
        self.goods = keras.layers.Embedding(_GOODS, 16)
        self.query = keras.Sequential(
            [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(16)]
        )
        self.candidate = keras.layers.Dense(16)

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        asked = [self.buyers(inputs["buyer"]), self.months(inputs["month"])]
        query = self.query(ops.concatenate(asked, axis=-1))
        candidate = self.candidate(self.goods(inputs["good"]))
        return {
            "query": query,
            "candidate": candidate,
            "score": ops.sum(query * candidate, axis=-1, keepdims=True),
        }

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The cross-entropy of finding a record's good among those of the batch."""
        scores = ops.matmul(y_pred["query"], ops.transpose(y_pred["candidate"]))
        bought = ops.reshape(y, (-1,))
        places = ops.arange(ops.shape(bought)[0])
        is_same = ops.equal(bought[:, None], bought[None, :])
        is_other = ops.not_equal(places[:, None], places[None, :])
        hidden = ops.cast(ops.logical_and(is_same, is_other), scores.dtype)
        return ops.mean(
            keras.losses.sparse_categorical_crossentropy(
                places, scores - 1e6 * hidden, from_logits=True
            )
        )


def _two_towers() -> keras.Model:
    model = TwoTowers()
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01))
    return model


CASES = (
    Case(
        "matrix_factorization",
        _KIND,
        _PAIR,
        Feature("stars", "float32"),
        _ratings,
        _matrix_factorization,
    ),
    Case(
        "neural_matrix_factorization",
        _KIND,
        _PAIR,
        Feature("liked", "int64", vocabulary=YES_OR_NO),
        _likes,
        _neural_matrix_factorization,
    ),
    Case(
        "two_towers",
        _KIND,
        _PURCHASE,
        Feature("bought", "int64", vocabulary=_GOODS),
        _purchases,
        _two_towers,
    ),
)
