"""One input of a model, as it stands in a record."""

import dataclasses
import math
import zlib
from typing import Any

from tfps.errors import UserError

DTYPES = ("int64", "float32", "string")


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named value in every record, or a list of values of varying length.

    Attributes:
        name: Its key in the `tf.train.Example` and the model's input name.
        dtype: `int64`, `float32` or `string`.
        shape: Shape of one record's value; `()` is a scalar, `(None,)` any number of values, also
            none, which make the batch a `tf.RaggedTensor`.
        vocabulary: For ids (`int64`): their number, so that every id lies in `[0, vocabulary)`; or
            the tokens themselves, whose ids are 1, 2, … in this order, with 0 for any other token.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    vocabulary: int | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UserError(
                f"feature {self.name!r}: dtype {self.dtype!r} is not one of {', '.join(DTYPES)}"
            )
        if None in self.shape and self.shape != (None,):
            raise UserError(
                f"feature {self.name!r}: shape {self.shape} is neither fixed nor (None,), which is "
                "the only shape that may vary"
            )
        if self.vocabulary is not None and self.dtype != "int64":
            raise UserError(
                f"feature {self.name!r}: a vocabulary needs dtype int64 (ids), not {self.dtype}"
            )
        if self.vocabulary is not None and self.vocabulary_size < 1:
            raise UserError(f"feature {self.name!r}: the vocabulary is empty")

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the one for unknown tokens included; 0 when there is no vocabulary."""
        if self.vocabulary is None:
            return 0
        return self.vocabulary if isinstance(self.vocabulary, int) else len(self.vocabulary) + 1

    @property
    def is_ragged(self) -> bool:
        """Whether records differ in their number of values."""
        return None in self.shape

    @property
    def size(self) -> int | None:
        """Number of values in one record; None where it differs."""
        fixed = [size for size in self.shape if size is not None]
        return math.prod(fixed) if len(fixed) == len(self.shape) else None

    def schema(self) -> dict[str, Any]:
        """The feature as JSON-ready data, equal for equal records."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "vocabulary_size": self.vocabulary_size,
            "vocabulary_crc32": self._vocabulary_crc32,
        }

    @property
    def _vocabulary_crc32(self) -> int:
        """Tells vocabularies of one size apart: other tokens, or another order, are other ids."""
        tokens = self.vocabulary if isinstance(self.vocabulary, tuple) else ()
        return zlib.crc32("\n".join(tokens).encode())
