"""Replaces what Keras and TensorFlow give no public way to change about a user's model.

Everything that is replaced for a model is replaced here. `docs/tensorflow_insides.md` names it, and
the tests in `tests/insides` fail when one of the names goes.
"""

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def embedding_class_replaced(
    build: Callable[[keras.layers.Embedding, Callable[[], None]], None],
    before_whole_table: Callable[[keras.layers.Embedding], None],
) -> Iterator[None]:
    """While a model is built: replaces what embedding layers do to make their tables.

    A layer has no way to be told that its table is elsewhere, and a layer class of tfps's own would
    have users change their models.

    Args:
        build: Given a layer that is not built, and what Keras does to build it.
        before_whole_table: Given a layer whose `embeddings` are asked for; may raise.
    """
    embedding = keras.layers.Embedding
    keras_build, embeddings = embedding.build, embedding.embeddings

    def build_layer(layer: keras.layers.Embedding, input_shape: Any = None) -> None:
        if not layer.built:
            build(layer, functools.partial(keras_build, layer, input_shape))

    def whole_table(layer: keras.layers.Embedding) -> Any:
        before_whole_table(layer)
        return embeddings.fget(layer)

    embedding.build, embedding.embeddings = build_layer, property(whole_table)
    try:
        yield
    finally:
        embedding.build, embedding.embeddings = keras_build, embeddings


def replace_table(
    layer: keras.layers.Embedding, call: Callable[[Any], Any], give: Callable[[Any], None]
) -> None:
    """Lets one embedding layer answer without a table, for good.

    Keras looks for a table wherever a layer is built; so it is told that the layer is.

    Args:
        layer: The layer.
        call: What it does with ids.
        give: What it does with rows that it is given, `[rows, dim]`: by `set_weights` (which
            `weights=` calls), or from a file of weights, a dataset that is open until this returns.
    """

    def set_weights(weights: Sequence[Any]) -> None:
        (rows,) = weights
        give(rows)

    layer.call, layer.set_weights, layer.built = call, set_weights, True
    layer.load_own_variables = lambda store: give(store["0"])


def replace_call(layer: keras.layers.Layer, call: Callable[[Any], Any]) -> None:
    """Lets one layer do something else with its inputs, for good.

    Keras has no hook before a layer's call; a wrapper would give its variables other paths.
    """
    layer.call = call


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """A model and every layer within it, at any depth, each once.

    `layers` has those at the first depth, of a `Model` alone; TensorFlow's trackables lack what a
    model of the user's own holds in lists.

    Args:
        model: The model.
    """
    return list(model._flatten_layers())


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """What a model was compiled with, as it was given, by argument.

    Keras's own `get_compile_config` gives it serialized, of which functions and classes that nobody
    has registered cannot be made again.

    Args:
        model: A compiled model.
    """
    return dict(model._compile_config.config)


@contextlib.contextmanager
def lookup_tables_noted() -> Iterator[list[tf.lookup.StaticHashTable]]:
    """While a model is built: gives a list that fills with the lookup tables that are made.

    Neither a model nor Keras's lookup layers say which tables they hold.
    """
    table, made = tf.lookup.StaticHashTable, []
    init = table.__init__

    def note(self: tf.lookup.StaticHashTable, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    table.__init__ = note
    try:
        yield made
    finally:
        table.__init__ = init


def replace_lookup(table: tf.lookup.StaticHashTable, find: Callable[..., Any]) -> None:
    """Lets one lookup table answer from elsewhere, for good.

    A table has no way to be told that closures run on other machines.
    """
    table.lookup = find


@contextlib.contextmanager
def initializers_seeded(seed: int) -> Iterator[None]:
    """While a model is built: lets the seeds of its initializers depend on one seed alone.

    Keras draws them with `random.randint`, and other threads draw from the same generator, for
    example while they wait for a bucket: the model would be another one.
    """
    draw = random.randint
    random.randint = random.Random(seed).randint  # noqa: S311 (a seed, not a secret)
    try:
        yield
    finally:
        random.randint = draw
