"""Replaces parts of a user's model that Keras and TensorFlow have no public way to change.

Everything that is replaced for a model is replaced here. `docs/tensorflow_insides.md` lists it, and
the tests in `tests/insides` fail when one of the names goes.
"""

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import keras
import tensorflow as tf


@contextlib.contextmanager
def embedding_class_replaced(
    build: Callable[[keras.layers.Embedding, Callable[[], None]], None],
) -> Iterator[None]:
    """While a model is built: replaces how embedding layers make their tables.

    A layer has no setting for a table elsewhere, and users would have to change their models for a
    layer class of tfps. `build` gets an unbuilt layer, and Keras's own way to build it.
    """
    embedding = keras.layers.Embedding
    keras_build = embedding.build

    def build_layer(layer: keras.layers.Embedding, input_shape: Any = None) -> None:
        if not layer.built:
            build(layer, functools.partial(keras_build, layer, input_shape))

    embedding.build = build_layer
    try:
        yield
    finally:
        embedding.build = keras_build


class TableElsewhere(NamedTuple):
    """What an embedding layer does without a table of its own."""

    look_up: Callable[[Any], Any]
    # takes rows `[rows, dim]`: of `set_weights` (which `weights=` calls), or of a weights file, a
    # dataset that is open until this returns
    give: Callable[[Any], None]
    refuse_whole: Callable[[], NoReturn]  # raises, since the whole table is needed


class _WithoutTable(keras.layers.Embedding):
    """A base between an embedding layer's own class and Keras's, for a table elsewhere.

    So a class derived from Keras's finds its base's methods here, and does its own work as before.
    """

    _elsewhere: TableElsewhere

    def call(self, inputs: Any) -> Any:
        return self._elsewhere.look_up(inputs)

    @property
    def embeddings(self) -> Any:
        self._elsewhere.refuse_whole()

    _embeddings = embeddings

    def set_weights(self, weights: Sequence[Any]) -> None:
        rows, *others = weights
        self._elsewhere.give(rows)
        super().set_weights(others)

    def load_own_variables(self, store: Any) -> None:
        self._elsewhere.give(store["0"])
        names = self.variable_serialization_spec[None][1:]
        others = [getattr(self, name) for name in names if hasattr(self, name)]
        for number, variable in enumerate(others, 1):
            variable.assign(store[str(number)])


def replace_table(
    layer: keras.layers.Embedding, elsewhere: TableElsewhere, has_own_call: bool
) -> None:
    """Makes one embedding layer answer without a table, for good.

    Keras looks for a table wherever a layer is built; so the layer is marked as built.
    `has_own_call` is for a class whose call does more than look ids up.
    """
    kind = type(layer)
    vars(layer)["_elsewhere"] = elsewhere
    if not issubclass(kind, _WithoutTable):  # a clone of another layer may be one
        bases = (_WithoutTable,) if kind is keras.layers.Embedding else (kind, _WithoutTable)
        # Keras finds the class by these names, where it saves a layer and makes it again.
        own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        look_up = {} if has_own_call else {"call": _WithoutTable.call}
        layer.__class__ = type(kind.__name__, bases, {**own, **look_up})
    layer.built = True


def replace_call(layer: keras.layers.Layer, call: Callable[[Any], Any]) -> None:
    """Replaces one layer's call, for good.

    Keras has no hook before it; a wrapper would change the paths of its variables.
    """
    layer.call = call


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """A model and every layer within it, at any depth, each once.

    `layers` has those at the first depth, of a `Model` alone; TensorFlow's trackables lack those
    that a user's model has in lists.
    """
    return list(model._flatten_layers())


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """The arguments of a model's `compile`, as given.

    Keras's own `get_compile_config` serializes them; unregistered functions and classes cannot be
    made again from that.
    """
    return dict(model._compile_config.config)


def schedule_class(optimizer: keras.optimizers.Optimizer) -> dict[str, type]:
    """The class of an optimizer's schedule by its name; empty where it has none.

    Keras makes an optimizer again by its config if it knows this class, and users of `fit` need not
    register it.
    """
    # The public learning_rate is what the schedule gives.
    schedule = getattr(optimizer, "inner_optimizer", optimizer)._learning_rate
    is_schedule = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    return {type(schedule).__name__: type(schedule)} if is_schedule else {}


@contextlib.contextmanager
def lookup_tables_noted() -> Iterator[list[tf.lookup.StaticHashTable]]:
    """While a model is built: yields a list of the lookup tables that are made.

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
    """Makes one lookup table answer from elsewhere, for good.

    A table has no setting for closures on other machines.
    """
    table.lookup = find


@contextlib.contextmanager
def initializers_seeded(seed: int) -> Iterator[None]:
    """While a model is built: makes the seeds of its initializers depend on one seed alone.

    Keras draws them with `random.randint`, and other threads draw from the same generator, for
    example while they wait for a bucket: the model would be another one.
    """
    draw = random.randint
    random.randint = random.Random(seed).randint  # noqa: S311 (a seed, not a secret)
    try:
        yield
    finally:
        random.randint = draw
