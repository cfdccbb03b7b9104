"""Takes over the embedding layers of a model, so that their tables can live on the ps."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tfps import byte_size
from tfps.data.key_rows import KeyRowFiles
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import KeyedTable
from tfps.layers.embedding import EmbeddingTable, check_ids
from tfps.layers.rows_of_files import RowsOfFiles
from tfps.model import keras_patches
from tfps.model.initial_values import keep_rows, refuse_unusable

# Given a layer, the index of its table and ids of any shape, the rows `[*ids.shape, dim]`.
Answer = Callable[[keras.layers.Embedding, int, tf.Tensor], tf.Tensor]
_VALUE_BYTES = 4  # of a float32
# Those of Keras that scale what lies along an axis, and leave alone what they have scaled.
_OF_NORMS = (keras.constraints.MaxNorm, keras.constraints.MinMaxNorm, keras.constraints.UnitNorm)
_log = logging.getLogger(__name__)
_EXACT_FLOATS = 1 << 24  # above it, float32 does not hold every integer
_WHOLE_BYTES = 256 << 20  # a table that may travel as a whole with every step
_DRAWN_BYTES = 256 << 20  # a table that the chief may draw, to make rows of it a constant


def zero_rows(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
    """An `Answer` that only has the right shape."""
    return tf.gather(tf.zeros([1, layer.output_dim]), tf.zeros_like(ids))


def noted_zero_rows(answers: list[tf.Tensor]) -> Answer:
    """An `Answer` of zeros that notes them, and finds ids that depend on them."""

    def answer(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
        _refuse_dependence(layer, ids, answers)
        answers.append(zero_rows(layer, table, ids))
        return answers[-1]

    return answer


def refuse_late(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
    """The `Answer` while the loss is computed."""
    raise UserError(
        f"layer {layer.path!r} is called by compute_loss(); on parameter servers rows are pulled "
        "before: call it in the model's call() and put what it gives into the outputs"
    )


def _refuse_dependence(
    layer: keras.layers.Layer, ids: tf.Tensor, answers: Sequence[tf.Tensor]
) -> None:
    """Refuses ids made from another layer's rows: they would need a second pull in a step."""
    rows = {id(answer.op) for answer in answers}
    seen, waiting = set(), [ids.op]
    while waiting:
        op = waiting.pop()
        if id(op) in rows:
            raise UserError(
                f"layer {layer.path!r}: its ids depend on another Embedding layer's output; "
                "on parameter servers ids must be computed from the model's inputs alone"
            )
        if id(op) not in seen:
            seen.add(id(op))
            waiting.extend(tensor.op for tensor in op.inputs)


def table_bytes(layer: keras.layers.Embedding) -> int:
    """The size of a layer's table, without slots; the most, where it has no vocabulary."""
    rows = layer.options.max_rows if isinstance(layer, KeyedTable) else layer.input_dim
    return int(rows * layer.output_dim * _VALUE_BYTES)


def refuse_options(layer: keras.layers.Embedding) -> None:
    options = {
        "embeddings_regularizer, which would change every row in every step (unlike "
        "activity_regularizer),": layer.embeddings_regularizer,
        "lora_rank": layer.lora_rank or layer.lora_enabled,
        "quantization": layer.quantization_config or layer.quantization_mode,
    }
    for option, value in options.items():
        if value:
            raise UserError(
                f"layer {layer.path!r}: {option} is not supported on a table that lives on the ps; "
                f"leave it out, or keep the table dense with train.dense_table_bytes="
                f"{table_bytes(layer)}"
            )
    if layer.variable_dtype != "float32":
        raise UserError(
            f"layer {layer.path!r}: its table would have dtype {layer.variable_dtype}; tables on "
            "the ps hold float32 only; use dtype float32, or a mixed precision policy"
        )


def row_constraint(layer: keras.layers.Embedding) -> keras.constraints.Constraint | None:
    """The constraint of a layer's table, which Keras applies to all rows after every step.

    Applying it whenever a row is read is the same for a constraint of single rows that keeps its
    own results. As in Keras, that of an untrained layer does nothing.
    """
    constraint = layer.embeddings_constraint
    if constraint is None or not layer.trainable:
        return None
    kind = type(constraint)
    if kind in _OF_NORMS and np.ravel(constraint.axis).tolist() not in ([1], [-1]):
        raise UserError(
            f"layer {layer.path!r}: embeddings_constraint {kind.__name__} has "
            f"axis={constraint.axis}, so that it scales columns by all rows of the table, and "
            "a step has few of them; say axis=1, which scales each row by itself"
        )
    is_gradual = kind is keras.constraints.MinMaxNorm and constraint.rate != 1
    if is_gradual or kind not in (*_OF_NORMS, keras.constraints.NonNeg):
        name = f"{kind.__name__} with rate={constraint.rate}" if is_gradual else kind.__name__
        raise UserError(
            f"layer {layer.path!r}: embeddings_constraint {name} may change every row in every "
            "step, and a table on the ps changes few; use keras.constraints.NonNeg, or "
            "MaxNorm, UnitNorm or MinMaxNorm (rate=1) with axis=1"
        )
    return constraint


class WholeTableUsedError(UserError):
    """The whole table of a layer is needed, and the layer has none; `size` is in bytes."""

    def __init__(self, layer: keras.layers.Embedding) -> None:
        super().__init__(f"layer {layer.path!r}: its whole table is used")
        self.path = layer.path
        self.size = table_bytes(layer)
        self.has_keys = isinstance(layer, KeyedTable)

    @classmethod
    def behind(cls, error: BaseException | None) -> "WholeTableUsedError | None":
        """The one that has caused an error, for Keras wraps what a model's layers raise."""
        while error is not None:
            if isinstance(error, cls):
                return error
            error = error.__cause__ or error.__context__
        return None


class EmbeddingLayers:
    """The `keras.layers.Embedding` layers of one model, derived ones too, without tables.

    Rows for constant ids are constants of the model, as in Keras: the rows as they are drawn. A
    layer called with nothing else is no part of the model.
    """

    def __init__(self, dense_table_bytes: int = 0) -> None:
        """Layers keep their tables of at most `dense_table_bytes`."""
        self.tables: list[Table] = []
        self._dense_table_bytes = dense_table_bytes
        self._whole: set[str] = set()  # paths of layers that hold the tables they use whole
        self._only: Collection[str] | None = None  # names of the tables to take over; None for all
        self._layers: list[keras.layers.Embedding] = []
        self._drawn: dict[int, tf.Tensor] = {}  # whole tables by their layers' ids
        self._answer: Answer = zero_rows  # while a model is being built, only shapes matter

    def begin_again(self, used: WholeTableUsedError | None = None) -> "EmbeddingLayers":
        """No layers, for the model to be built again."""
        again = EmbeddingLayers(self._dense_table_bytes)
        again._whole = set(self._whole)
        if used:
            again._leave_whole(used)
        return again

    @classmethod
    def only(cls, tables: Collection[str]) -> "EmbeddingLayers":
        """No layers, for a model where these tables alone are taken over; others are Keras's."""
        layers = cls()
        layers._only = frozenset(tables)
        return layers

    @contextlib.contextmanager
    def taken_over(self) -> Iterator[None]:
        """While a model is built: its embedding layers register a table instead of making one.

        Layers with small tables stay as they are, and those whose whole tables are used.
        """
        with keras_patches.embedding_class_replaced(self._build):
            yield
        for index, layer in enumerate(self._layers):
            refuse_options(layer)
            self.tables[index] = dataclasses.replace(
                self.tables[index],
                # Users may set it after the layer was built, or on the model around it.
                is_trained=layer.trainable,
                constraint=row_constraint(layer),
            )

    def refuse_made_before(self, model: keras.Model) -> None:
        """Refuses the result of `build_model()` if layers with large tables were built before."""
        mine = set(map(id, self._layers))
        for part in keras_patches.layers_of(model):
            is_table = isinstance(part, keras.layers.Embedding) and self._is_table(part)
            if is_table and part.built and id(part) not in mine and not _may_stay(part):
                raise UserError(
                    f"build_model(): layer {part.path!r} was built before, so that its table lies "
                    "in this process; make the model in build_model(), or hand the compiled model "
                    "to tfps.task_of(), which takes a copy of it"
                )

    def leave_out_strangers(self, model: keras.Model) -> None:
        """Drops the tables of layers that are no part of the built model, and logs which."""
        parts = set(map(id, keras_patches.layers_of(model)))
        for layer in [each for each in self._layers if id(each) not in parts]:
            if table_bytes(layer) > _DRAWN_BYTES:
                raise UserError(
                    f"layer {layer.path!r}: it is called on constants alone, and its table has "
                    f"{byte_size.show(table_bytes(layer))}; call it on ids that are computed from "
                    "an input"
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
        """While the model is called: the output of its embedding layers."""
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
            if self._only is None:
                self._check_dense(layer)

    def _leave_whole(self, used: WholeTableUsedError) -> None:
        if used.has_keys:
            raise UserError(
                f"layer {used.path!r}: the model uses its whole table (layer.embeddings), but "
                "one without a vocabulary has no matrix; call the layer on the keys to look up"
            ) from None
        if used.size > _WHOLE_BYTES:
            raise UserError(
                f"layer {used.path!r}: the model uses its whole table (layer.embeddings), so that "
                f"each step would pull and push all its {byte_size.show(used.size)}, more than "
                f"{byte_size.show(_WHOLE_BYTES)}; let the loss ask for some rows alone, by calling "
                "the layer on the label and on negatives (sampled softmax), or allow it with "
                f"train.dense_table_bytes={used.size}"
            ) from None
        _log.warning(
            "layer %r: the model uses its whole table, which is therefore part of the dense "
            "parameters: each step pulls and pushes all its %s",
            used.path,
            byte_size.show(used.size),
        )
        self._whole.add(used.path)

    def _is_table(self, layer: keras.layers.Embedding) -> bool:
        if isinstance(layer, KeyedTable):
            return True
        if self._only is not None:
            return _table_name(layer) in self._only
        return table_bytes(layer) > self._dense_table_bytes and layer.path not in self._whole

    def _check_dense(self, layer: keras.layers.Embedding) -> None:
        """Makes a layer that holds its table refuse bad ids."""
        kind = type(layer)
        if kind.call is keras.layers.Embedding.call:
            table, rows = _table_name(layer), layer.input_dim

            def call(ids: tf.Tensor) -> tf.Tensor:
                return kind.call(layer, _each(ids, lambda some: check_ids(some, rows, table)))

            keras_patches.replace_call(layer, call)

    def _register(self, layer: keras.layers.Embedding) -> None:
        name = _table_name(layer)
        keys = layer.options if isinstance(layer, KeyedTable) else None
        rows = keys.max_rows if keys else layer.input_dim
        initializer, rows_from = layer.embeddings_initializer, None
        if isinstance(initializer, RowsOfFiles):
            key_dtype = layer.key_dtype if isinstance(layer, KeyedTable) else "int64"
            rows_from = KeyRowFiles(initializer.path, key_dtype, layer.output_dim)
            initializer = initializer.otherwise
        row_dtype = getattr(layer, "row_dtype", "float32")  # Keras's own have none
        table = Table(
            name,
            rows,
            layer.output_dim,
            initializer,
            keys=keys,
            rows_from=rows_from,
            row_dtype=row_dtype,
        )
        self.tables.append(table)
        refuse_unusable(self.tables[-1])
        self._layers.append(layer)

        def rows_of(ids: tf.Tensor) -> tf.Tensor:
            if ids.dtype not in (tf.int32, tf.int64):
                _refuse_inexact(layer, ids)
                ids = tf.cast(ids, tf.int64)
            rows = tf.cast(self._rows_of(layer, ids), layer.compute_dtype)
            return rows if layer.trainable else tf.stop_gradient(rows)

        def give(rows: Any) -> None:
            if keys:
                raise UserError(
                    f"layer {layer.path!r}: rows of a table without a vocabulary belong to keys, "
                    "and a matrix has none"
                )
            kept = keep_rows(name, (layer.input_dim, layer.output_dim), rows)
            index = self._layers.index(layer)
            self.tables[index] = dataclasses.replace(
                self.tables[index], initializer=kept, rows_from=None
            )
            layer.embeddings_initializer = kept

        def refuse_whole() -> NoReturn:
            raise WholeTableUsedError(layer)

        keras_patches.replace_table(
            layer,
            keras_patches.TableElsewhere(lambda ids: _each(ids, rows_of), give, refuse_whole),
            has_own_call=not _has_usual_lookup(layer),
        )

    def _rows_of(self, layer: keras.layers.Embedding, ids: tf.Tensor) -> tf.Tensor:
        is_constant = self._answer is zero_rows and tf.executing_eagerly()  # nobody calls the model
        if layer in self._layers and not is_constant:
            return self._answer(layer, self._layers.index(layer), ids)
        if table_bytes(layer) > _DRAWN_BYTES:  # of a model that is called once to be built, say
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
    """Changes ids, dense or of a ragged tensor; a sparse one gets 0 where it has none."""
    if isinstance(ids, tf.SparseTensor):
        return change(tf.sparse.to_dense(ids))  # Keras, too, gives row 0 where there is no id
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(change(ids.flat_values))
    return change(ids)


def _table_name(layer: keras.layers.Embedding) -> str:
    return f"{layer.path}/embeddings"


def _may_stay(layer: keras.layers.Embedding) -> bool:
    """Whether a layer built before may hold its table, which its class may use whole."""
    return not _has_usual_lookup(layer) and table_bytes(layer) <= _WHOLE_BYTES


def _has_usual_lookup(layer: keras.layers.Embedding) -> bool:
    return type(layer).call in (keras.layers.Embedding.call, EmbeddingTable.call)


def _refuse_inexact(layer: keras.layers.Embedding, ids: tf.Tensor) -> None:
    if ids.dtype.is_floating and layer.input_dim > _EXACT_FLOATS:
        raise UserError(
            f"layer {layer.path!r}: its ids are {ids.dtype.name}, which cannot tell ids above "
            f"{_EXACT_FLOATS:,} apart; begin a Sequential model with keras.Input(…, dtype='int64')"
        )
