"""Takes over the embedding layers of a model, so that their tables can live on the ps."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfps.errors import UserError
from tfps.table import Table

# Given a layer, the index of its table and ids of any shape, the rows `[*ids.shape, dim]`.
Answer = Callable[[keras.layers.Embedding, int, tf.Tensor], tf.Tensor]


class EmbeddingLayers:
    """The `keras.layers.Embedding` layers of one model; they hold no tables.

    Attributes:
        tables: One per layer, in the order in which the layers were built.
    """

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self._answer: Answer = zero_rows  # while a model is being built, only shapes matter

    @contextlib.contextmanager
    def taken_over(self) -> Iterator[None]:
        """While a model is built: its embedding layers register a table instead of making one.

        A layer whose class has a lookup of its own is left as it is.
        """
        embedding = keras.layers.Embedding
        build = embedding.build

        def register(layer: keras.layers.Embedding, input_shape: Any = None) -> None:
            if type(layer).call is not embedding.call:
                build(layer, input_shape)
            elif not layer.built:
                self._register(layer)

        embedding.build = register
        try:
            yield
        finally:
            embedding.build = build

    @contextlib.contextmanager
    def answered_by(self, answer: Answer) -> Iterator[None]:
        """While the model is called: what its embedding layers return."""
        self._answer = answer
        try:
            yield
        finally:
            self._answer = zero_rows

    def _register(self, layer: keras.layers.Embedding) -> None:
        _refuse_options(layer)
        table = len(self.tables)
        path = f"{layer.path}/embeddings"
        self.tables.append(
            Table(path, layer.input_dim, layer.output_dim, layer.embeddings_initializer)
        )

        def look_up(ids: tf.Tensor) -> tf.Tensor:
            if ids.dtype not in (tf.int32, tf.int64):
                ids = tf.cast(ids, tf.int32)
            return tf.cast(self._answer(layer, table, ids), layer.compute_dtype)

        layer.call = look_up
        layer.built = True


def zero_rows(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
    """An `Answer` that only has the right shape."""
    rows = tf.zeros(tf.concat([tf.shape(ids), [layer.output_dim]], 0))
    return tf.ensure_shape(rows, [*ids.shape, layer.output_dim])


def _refuse_options(layer: keras.layers.Embedding) -> None:
    options = {
        "embeddings_regularizer": layer.embeddings_regularizer,
        "embeddings_constraint": layer.embeddings_constraint,
        "lora_rank": layer.lora_rank,
        "quantization_config": layer.quantization_config,
        "trainable=False": not layer.trainable,
    }
    for option, value in options.items():
        if value:
            raise UserError(
                f"layer {layer.path!r}: {option} is not supported on a table; leave it out"
            )
