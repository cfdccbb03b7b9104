"""Takes over the embedding layers of a model, so that their tables can live on the ps."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.layers.embedding_table import EmbeddingTable, check_ids
from tfps.model import keras_patches
from tfps.model.answers import Answer, zero_rows
from tfps.model.initial_values import refuse_unusable
from tfps.model.kept_rows import keep_rows

_log = logging.getLogger(__name__)

_VALUE_BYTES = 4  # of a float32
_EXACT_FLOATS = 1 << 24  # above it, float32 does not hold every integer
_SILENT_BYTES = 1 << 20  # what may travel with every step without a word
_DRAWN_BYTES = 256 << 20  # a table that the chief may draw, of which rows become a constant


class EmbeddingLayers:
    """The `keras.layers.Embedding` layers of one model; they hold no tables.

    What a layer is asked by a constant is part of the model as a constant, in Keras as here: its
    rows as they are drawn. A layer that is asked by nothing else is no part of the model.

    Attributes:
        tables: One per layer, in the order in which the layers were built.
    """

    def __init__(self, dense_table_bytes: int = 0) -> None:
        """Begins without layers.

        Args:
            dense_table_bytes: Layers whose tables have at most so many bytes are left to hold them.
        """
        self.tables: list[Table] = []
        self._dense_table_bytes = dense_table_bytes
        self._layers: list[keras.layers.Embedding] = []
        self._drawn: dict[int, tf.Tensor] = {}  # whole tables by their layers' ids
        self._answer: Answer = zero_rows  # while a model is being built, only shapes matter

    @contextlib.contextmanager
    def taken_over(self) -> Iterator[None]:
        """While a model is built: its embedding layers register a table instead of making one.

        A layer whose class has a lookup of its own is left as it is, and so is a small one.

        Raises:
            UserError: At the end, if a layer has an option that cannot work on a table.
        """
        with keras_patches.embedding_class_replaced(self._build, self._refuse_whole_table):
            yield
        for index, layer in enumerate(self._layers):
            _refuse_options(layer)
            # It may be told after it was built, or by the model that it is a part of.
            self.tables[index] = dataclasses.replace(self.tables[index], is_trained=layer.trainable)

    def refuse_made_before(self, model: keras.Model) -> None:
        """Refuses a model some of whose layers hold large tables: they were built before.

        Args:
            model: That `build_model()` returned while the layers were taken over.

        Raises:
            UserError: If there is one.
        """
        mine = set(map(id, self._layers))
        for part in keras_patches.layers_of(model):
            is_table = isinstance(part, keras.layers.Embedding) and self._is_table(part)
            if is_table and part.built and id(part) not in mine:
                raise UserError(
                    f"build_model(): layer {part.path!r} was built before, so that its table lies "
                    "in this process; make the model in build_model(), or hand the compiled model "
                    "to tfps.task_of(), which takes a copy of it"
                )

    def leave_out_strangers(self, model: keras.Model) -> None:
        """Makes no tables for layers that are no part of the model, and says which they are.

        Args:
            model: That was built while the layers were taken over.

        Raises:
            UserError: If a table is too large to be drawn here.
        """
        parts = set(map(id, keras_patches.layers_of(model)))
        for layer in [each for each in self._layers if id(each) not in parts]:
            if _bytes(layer) > _DRAWN_BYTES:
                raise UserError(
                    f"layer {layer.path!r}: it is called on constants alone, and its table has "
                    f"{_bytes(layer) / 1e6:,.0f} MB; call it on ids that are computed from an input"
                )
            index = self._layers.index(layer)
            del self._layers[index], self.tables[index]
            _log.warning(
                "layer %r is no part of the model, since it is called on constants alone: its rows "
                "stay as they are drawn, as they do in Keras. To have them trained, call it on ids "
                "that are computed from an input, say keras.ops.arange(n) + 0 * x",
                layer.path,
            )
        self._drawn.clear()

    @contextlib.contextmanager
    def answered_by(self, answer: Answer) -> Iterator[None]:
        """While the model is called: what its embedding layers return."""
        self._answer = answer
        try:
            yield
        finally:
            self._answer = zero_rows

    def _build(self, layer: keras.layers.Embedding, make_table: Callable[[], None]) -> None:
        if self._is_table(layer):
            self._register(layer)
        else:
            make_table()
            self._check_dense(layer)

    def _refuse_whole_table(self, layer: keras.layers.Embedding) -> None:
        if layer in self._layers:
            raise _unsupported(layer, "the use of its whole table (layer.embeddings)")

    def _is_table(self, layer: keras.layers.Embedding) -> bool:
        return _has_usual_lookup(layer) and _bytes(layer) > self._dense_table_bytes

    def _check_dense(self, layer: keras.layers.Embedding) -> None:
        """Lets a layer that holds its table refuse bad ids, and says when it costs much."""
        kind = type(layer)
        if not _has_usual_lookup(layer):
            if _bytes(layer) > max(_SILENT_BYTES, self._dense_table_bytes):
                _log.warning(
                    "layer %r (%s) has a lookup of its own, so that its table stays dense: each "
                    "step pulls and pushes all its %.1f MB",
                    layer.path,
                    kind.__name__,
                    _bytes(layer) / 1e6,
                )
        elif kind.call is not EmbeddingTable.call:
            table, rows = f"{layer.path}/embeddings", layer.input_dim

            def call(ids: tf.Tensor) -> tf.Tensor:
                return kind.call(layer, _each(ids, lambda some: check_ids(some, rows, table)))

            keras_patches.replace_call(layer, call)

    def _register(self, layer: keras.layers.Embedding) -> None:
        name = f"{layer.path}/embeddings"
        self.tables.append(
            Table(name, layer.input_dim, layer.output_dim, layer.embeddings_initializer)
        )
        refuse_unusable(self.tables[-1])
        self._layers.append(layer)

        def rows_of(ids: tf.Tensor) -> tf.Tensor:
            if ids.dtype not in (tf.int32, tf.int64):
                _refuse_inexact(layer, ids)
                ids = tf.cast(ids, tf.int32)
            rows = tf.cast(self._rows_of(layer, ids), layer.compute_dtype)
            return rows if layer.trainable else tf.stop_gradient(rows)

        def give(rows: Any) -> None:
            kept = keep_rows(name, (layer.input_dim, layer.output_dim), rows)
            index = self._layers.index(layer)
            self.tables[index] = dataclasses.replace(self.tables[index], initializer=kept)
            layer.embeddings_initializer = kept

        keras_patches.replace_table(layer, lambda ids: _each(ids, rows_of), give)

    def _rows_of(self, layer: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
        is_constant = self._answer is zero_rows and tf.executing_eagerly()  # nobody calls the model
        if layer in self._layers and not is_constant:
            return self._answer(layer, self._layers.index(layer), ids)
        if _bytes(layer) > _DRAWN_BYTES:  # of a model that is called once to be built, say
            return zero_rows(layer, 0, ids)
        if id(layer) not in self._drawn:
            shape = layer.input_dim, layer.output_dim
            self._drawn[id(layer)] = tf.convert_to_tensor(
                layer.embeddings_initializer(shape, dtype="float32")
            )
        return tf.gather(self._drawn[id(layer)], ids)


def _each(
    ids: tf.Tensor | tf.RaggedTensor, change: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor | tf.RaggedTensor:
    """Changes ids, be they dense or the values of a ragged tensor."""
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(change(ids.flat_values))
    return change(ids)


def _has_usual_lookup(layer: keras.layers.Embedding) -> bool:
    return type(layer).call in (keras.layers.Embedding.call, EmbeddingTable.call)


def _bytes(layer: keras.layers.Embedding) -> int:
    return int(layer.input_dim * layer.output_dim * _VALUE_BYTES)


def _refuse_inexact(layer: keras.layers.Embedding, ids: tf.Tensor) -> None:
    if ids.dtype.is_floating and layer.input_dim > _EXACT_FLOATS:
        raise UserError(
            f"layer {layer.path!r}: its ids are {ids.dtype.name}, which cannot tell ids above "
            f"{_EXACT_FLOATS:,} apart; begin a Sequential model with keras.Input(…, dtype='int64')"
        )


def _refuse_options(layer: keras.layers.Embedding) -> None:
    if layer.embeddings_constraint:
        raise UserError(
            f"layer {layer.path!r}: embeddings_constraint is not supported, since the ps apply "
            "gradients only; leave it out"
        )
    options = {
        "embeddings_regularizer, which would change every row in every step (unlike "
        "activity_regularizer),": layer.embeddings_regularizer,
        "lora_rank": layer.lora_rank or layer.lora_enabled,
        "quantization": layer.quantization_config or layer.quantization_mode,
    }
    for option, value in options.items():
        if value:
            raise _unsupported(layer, option)
    if layer.variable_dtype != "float32":
        raise UserError(
            f"layer {layer.path!r}: its table would have dtype {layer.variable_dtype}; tables on "
            "the ps hold float32 only; use dtype float32, or a mixed precision policy"
        )


def _unsupported(layer: keras.layers.Embedding, what: str) -> UserError:
    return UserError(
        f"layer {layer.path!r}: {what} is not supported on a table that lives on the ps; leave it "
        f"out, or keep the table dense with train.dense_table_bytes={_bytes(layer)}"
    )
