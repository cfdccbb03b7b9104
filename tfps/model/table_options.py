"""Which options of an embedding layer work on a table of which a step touches few rows."""

import keras
import numpy as np

from tfps.errors import UserError
from tfps.layers.keyed_table import KeyedTable

_VALUE_BYTES = 4  # of a float32
# Those of Keras that scale what lies along an axis, and leave alone what they have scaled.
_OF_NORMS = (
    keras.constraints.MaxNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.UnitNorm,
)


def table_bytes(layer: keras.layers.Embedding) -> int:
    """How large a layer's table is, without slots; at most, where it has no vocabulary."""
    rows = layer.options.max_rows if isinstance(layer, KeyedTable) else layer.input_dim
    return int(rows * layer.output_dim * _VALUE_BYTES)


def refuse_options(layer: keras.layers.Embedding) -> None:
    """Refuses what cannot work on a table."""
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

    To apply it to a row whenever the row is looked at is the same for a constraint that looks at
    one row at a time and leaves alone what it has made. As in Keras, one of a layer that is not
    trained does nothing.
    """
    constraint = layer.embeddings_constraint
    if constraint is None or not layer.trainable:
        return None
    kind = type(constraint)
    if kind in _OF_NORMS and np.ravel(constraint.axis).tolist() not in ([1], [-1]):
        raise UserError(
            f"layer {layer.path!r}: embeddings_constraint {kind.__name__} has "
            f"axis={constraint.axis}, so that it scales columns by all rows of the table, of which "
            "a step knows few; say axis=1, which scales each row by itself"
        )
    is_gradual = kind is keras.constraints.MinMaxNorm and constraint.rate != 1
    if is_gradual or kind not in (*_OF_NORMS, keras.constraints.NonNeg):
        name = f"{kind.__name__} with rate={constraint.rate}" if is_gradual else kind.__name__
        raise UserError(
            f"layer {layer.path!r}: embeddings_constraint {name} may change every row in every "
            "step, of which a table on the ps changes few; use keras.constraints.NonNeg, or "
            "MaxNorm, UnitNorm or MinMaxNorm (rate=1) with axis=1"
        )
    return constraint
