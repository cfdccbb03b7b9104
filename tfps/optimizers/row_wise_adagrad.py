"""Adagrad with one accumulator for each row of a table."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError, reason_of
from tfps.optimizers.update_rule import RowUpdate, Slot, UpdateRule


@keras.saving.register_keras_serializable("tfps")
class RowWiseAdagrad(keras.optimizers.Optimizer):
    """Adagrad that keeps one number per row, where Keras's keeps one per value.

    For each row `w` with gradient `g`, both of length d:

        accumulator += mean(g²)
        w -= learning_rate · g / √(accumulator + epsilon)

    So a row of d float32 values takes 4 (d + 1) bytes instead of 8 d, and all its values share one
    learning rate (Naumov et al., 2019, "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems"; it is the usual optimizer of large tables). With d = 1 it is
    `keras.optimizers.Adagrad`.

    It is for tables: return it from the `table_optimizer()` of a task. In plain Keras it works on
    any variable, whose last axis are the values of a row.
    """

    @arguments.checked
    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        name: str | None = "row_wise_adagrad",
        **kwargs: Any,
    ):
        """Makes the optimizer.

        Args:
            learning_rate: A number, or a schedule of Keras.
            initial_accumulator_value: What accumulators begin with, 0 or more.
            epsilon: Is added to an accumulator where a gradient is divided by its root.
            name: Name of the optimizer.
            **kwargs: Of `keras.optimizers.Optimizer`.
        """
        try:
            super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        except Exception as error:  # Keras, of what it does not know
            raise UserError(f"RowWiseAdagrad(): {reason_of(error)}") from None
        if initial_accumulator_value < 0 or epsilon < 0:
            raise UserError(
                f"RowWiseAdagrad(): initial_accumulator_value={initial_accumulator_value} and "
                f"epsilon={epsilon} must be 0 or more"
            )
        self.initial_accumulator_value, self.epsilon = initial_accumulator_value, epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes an accumulator for each row of each variable."""
        if self.built:
            return
        super().build(variables)
        start = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = [
            self.add_variable(
                (*variable.shape[:-1], 1),
                initializer=start,
                dtype=variable.dtype,
                name=f"{variable.name}_accumulator",
            )
            for variable in variables
        ]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Changes a variable and its accumulators."""
        accumulator = self._accumulators[self._get_variable_index(variable)]
        rate = keras.ops.cast(learning_rate, variable.dtype)
        # Rows that were not looked up have a gradient of zero, which changes nothing.
        gradient = keras.ops.cast(tf.convert_to_tensor(gradient), variable.dtype)
        squares = keras.ops.mean(keras.ops.square(gradient), axis=-1, keepdims=True)
        self.assign_add(accumulator, squares)
        root = keras.ops.sqrt(keras.ops.add(accumulator, self.epsilon))
        self.assign_sub(variable, keras.ops.divide(keras.ops.multiply(rate, gradient), root))

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal optimizer."""
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }


class RowWiseAdagradRule(UpdateRule):
    """`RowWiseAdagrad` on the ps; the slot holds the accumulator plus epsilon."""

    def __init__(self, optimizer: RowWiseAdagrad):
        super().__init__(optimizer)
        start = self.config["initial_accumulator_value"] + self.config["epsilon"]
        self.slots = {"accumulator": Slot(start, is_square=True, is_per_row=True)}

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        accumulator = slots[0] + tf.reduce_mean(tf.square(gradient), 1, keepdims=True)
        rate = self.learning_rate(step)
        return [rows - gradient * (rate * tf.math.rsqrt(accumulator)), accumulator]
