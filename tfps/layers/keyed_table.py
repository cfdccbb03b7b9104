"""A table without a vocabulary that is a layer of its own."""

from typing import Any, NoReturn

import keras

from tfps.errors import UserError
from tfps.layers.key_options import KeyOptions

_ALL_KEYS = (1 << 63) - 1


@keras.saving.register_keras_serializable("tfps")
class KeyedTable(keras.layers.Embedding):
    """A `keras.layers.Embedding` that is asked for any int64, and whose rows come as keys do.

    Keras's layers hold matrices, so that it can hold no rows itself: they lie on parameter servers.

    Attributes:
        key_dtype: Dtype of the keys, `int64` or `string`; of strings it is asked for hashes.
    """

    def __init__(
        self,
        output_dim: int,
        options: KeyOptions,
        key_dtype: str,
        row_dtype: str = "float32",
        **kwargs: Any,
    ):
        super().__init__(_ALL_KEYS, output_dim, **kwargs)
        self.options = options
        self.key_dtype, self.row_dtype = key_dtype, row_dtype

    def add_weight(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuses to make a matrix."""
        raise UserError(
            f"layer {self.path!r}: a table without a vocabulary has no matrix that Keras could "
            "hold; build the model in the build_model() of a task and train it with trainer.task "
            "or cloud.local, and load what is exported with tfps.load_model"
        )
