"""What embedding layers answer while a model is called, in place of rows of tables of their own."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tfps.errors import UserError

# Given a layer, the index of its table and ids of any shape, the rows `[*ids.shape, dim]`.
Answer = Callable[[keras.layers.Embedding, int, tf.Tensor], tf.Tensor]


def zero_rows(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
    """An `Answer` that only has the right shape."""
    return tf.gather(tf.zeros([1, layer.output_dim]), tf.zeros_like(ids))


def noted_zero_rows(answers: list[tf.Tensor]) -> Answer:
    """Makes an `Answer` of zeros that notes them, and finds ids that depend on them."""

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
    """Refuses ids made from another layer's rows: they would need a second pull within a step."""
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
