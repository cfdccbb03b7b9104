"""Classifiers of text, given as strings or as ids of its words."""

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import DRAWN, YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import TokensAndPlaces, TransformerBlock
from tests.keras_models.signals import ids, shortened, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "text"

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")
_WORDS = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)
_LENGTH = 12

_REVIEW = (Feature("review", "string"),)


def _texts(words: np.ndarray) -> np.ndarray:
    """Sentences of words `[count, length]` by number; the first word of each is capitalized."""
    spelled = np.array(_WORDS, object)[words]
    return np.array([" ".join(sentence).capitalize() + "." for sentence in spelled], object)


def _reviews(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    words = ids(generator, count, len(_WORDS), _LENGTH)
    logits = truth("moods of words", len(_WORDS))[words].sum(axis=1)
    return {"review": _texts(words), "liked": yes_or_no(generator, logits)}


def _bag_of_words() -> keras.Model:
    known = [" ".join(_WORDS[start : start + 14]) for start in range(0, len(_WORDS) - 14, 14)]
    vectorize = keras.layers.TextVectorization(max_tokens=500, output_mode="multi_hot")
    vectorize.adapt(known)
    model = keras.Sequential(
        [
            keras.Input((), name="review", dtype="string"),
            vectorize,
            keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="rmsprop", loss="binary_crossentropy", metrics=["accuracy"])
    return model


_TOPICS = 4
_LETTER = (Feature("letter", "string"),)


def _on_topics(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words `[count, length]`, a third of which are of a text's topic, and topics `[count]`."""
    topics = generator.integers(0, _TOPICS, count)
    words = ids(generator, count, len(_WORDS), _LENGTH)
    of_topic = words - words % _TOPICS + topics[:, None]
    return np.where(generator.random(words.shape) < 0.33, of_topic, words), topics


def _letters(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    words, topics = _on_topics(generator, count)
    return {"letter": _texts(words), "topic": topics}


def _text_cnn() -> keras.Model:
    letter = inputs_of(_LETTER)["letter"]
    vectorize = keras.layers.TextVectorization(
        vocabulary=list(_WORDS), output_sequence_length=_LENGTH
    )
    hidden = keras.layers.Embedding(vectorize.vocabulary_size(), 16)(vectorize(letter))
    hidden = keras.layers.SpatialDropout1D(0.1)(hidden)
    pooled = [
        keras.layers.GlobalMaxPooling1D()(
            keras.layers.Conv1D(24, width, padding="same", activation="relu")(hidden)
        )
        for width in (1, 2, 3)
    ]
    hidden = keras.layers.Dropout(0.2)(keras.layers.Concatenate()(pooled))
    model = keras.Model(letter, keras.layers.Dense(_TOPICS, activation="softmax")(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    return model


_TOKENS = len(_WORDS) + 1  # 0 stands for no word
_POST = (Feature("tokens", "int64", (_LENGTH,), _TOKENS),)


def _posts(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    tokens = shortened(generator, 1 + ids(generator, count, len(_WORDS), _LENGTH), 3)
    moods = np.concatenate([[0.0], 1.5 * truth("moods of tokens", len(_WORDS))])
    return {"tokens": tokens, "kind": yes_or_no(generator, moods[tokens].sum(axis=1))}


def _text_transformer() -> keras.Model:
    tokens = inputs_of(_POST)["tokens"]
    hidden = TokensAndPlaces(_TOKENS, _LENGTH, 32)(tokens)
    hidden = TransformerBlock(32, heads=2, units=32)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    hidden = keras.layers.Dropout(0.1)(hidden)
    hidden = keras.layers.Dense(20, activation="relu")(hidden)
    model = keras.Model(tokens, keras.layers.Dense(2, activation="softmax")(hidden))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _bidirectional_lstm() -> keras.Model:
    tokens = inputs_of(_POST)["tokens"]
    hidden = keras.layers.Embedding(_TOKENS, 16, mask_zero=True)(tokens)
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(16, return_sequences=True))(hidden)
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(8))(hidden)
    model = keras.Model(tokens, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(0.005),
        loss="binary_crossentropy",
        metrics=["accuracy", keras.metrics.AUC()],
    )
    return model


_QUESTIONS = (
    Feature("first", "int64", (_LENGTH,), _TOKENS),
    Feature("second", "int64", (_LENGTH,), _TOKENS),
)


def _questions(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Two questions; they ask the same if they are on the same topic, as half of them are."""
    first, topics = _on_topics(generator, count)
    second, others = _on_topics(generator, count)
    same = generator.random(count) < 0.5
    second = np.where(same[:, None], generator.permuted(first, axis=1), second)
    return {
        "first": 1 + first,
        "second": 1 + second,
        "same": (same | (topics == others)).astype(np.float32),
    }


def _siamese() -> keras.Model:
    inputs = inputs_of(_QUESTIONS)
    tokens = keras.Input((_LENGTH,), dtype="int64")
    hidden = keras.layers.Embedding(_TOKENS, 16, dtype="mixed_bfloat16")(tokens)
    hidden = keras.layers.Dense(16, activation="tanh", dtype="mixed_bfloat16")(hidden)
    encode = keras.Model(tokens, keras.layers.GlobalAveragePooling1D()(hidden), name="encoder")
    first, second = encode(inputs["first"]), encode(inputs["second"])
    distance = ops.abs(first - second)
    hidden = keras.layers.Concatenate()([distance, first * second])
    hidden = keras.layers.Dense(16, activation="relu")(keras.layers.BatchNormalization()(hidden))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(0.002, amsgrad=True),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model


CASES = (
    Case(
        "bag_of_words",
        _KIND,
        _REVIEW,
        Feature("liked", "int64", vocabulary=YES_OR_NO),
        _reviews,
        _bag_of_words,
        tolerance=DRAWN,
    ),
    Case(
        "text_cnn",
        _KIND,
        _LETTER,
        Feature("topic", "int64", vocabulary=_TOPICS),
        _letters,
        _text_cnn,
        tolerance=DRAWN,
    ),
    Case(
        "text_transformer",
        _KIND,
        _POST,
        Feature("kind", "int64", vocabulary=YES_OR_NO),
        _posts,
        _text_transformer,
        tolerance=DRAWN,
        # Of 64 updates, those on a worker's first parameters are a large part: up to 0.5 was seen.
        on_cluster=0.6,
    ),
    Case(
        "bidirectional_lstm",
        _KIND,
        _POST,
        Feature("kind", "int64", vocabulary=YES_OR_NO),
        _posts,
        _bidirectional_lstm,
    ),
    Case(
        "siamese",
        _KIND,
        _QUESTIONS,
        Feature("same", "float32"),
        _questions,
        _siamese,
        tolerance=DRAWN,
    ),
)
