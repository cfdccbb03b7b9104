"""One input of a model, as a record holds it."""

import dataclasses
import math
import zlib
from typing import Any, ClassVar, TypedDict

from tfps import arguments
from tfps.errors import UserError

_LARGEST_FLOAT32 = 3.4028234663852886e38
DTYPES = ("int64", "float32", "string")
_BY_NAME = {"int": "int64", "float": "float32", "str": "string"}  # of Python's types


class FeatureSchema(TypedDict):
    """What a dataset's manifest keeps of a feature, JSON-ready."""

    name: str
    dtype: str
    shape: list[int | None]
    vocabulary_size: int
    vocabulary_crc32: int


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named value in every record, or a list of values of varying length.

    Attributes:
        name: Its key in the `tf.train.Example` and the model's input name.
        dtype: `int64`, `float32` or `string`, also as a dtype of TensorFlow or NumPy.
        shape: Shape of one record's value; `()` is a scalar, `(None,)` any number of values, also
            none, which make the batch a `tf.RaggedTensor`.
        vocabulary: For ids (`int64`): their number, so that every id lies in `[0, vocabulary)`; or
            the tokens themselves, whose ids are 1, 2, … in this order, with 0 for any other token.
        default: What a record without the feature counts as, or with an empty list: a number, or a
            text for `string`; the same for each of several values. None where every record must
            have it. Not for shape `(None,)`, where such a record has no values, nor for a label.
    """

    EXAMPLE: ClassVar[str] = "tfps.Feature('age', 'float32')"

    name: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    vocabulary: int | tuple[str, ...] | None = None
    default: float | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        arguments.check_fields(self, f"feature {arguments.shown(self.name)}: ")
        if not self.name:
            raise UserError("feature '': it needs a name, that of its key in a record")
        if self.dtype not in DTYPES:
            raise UserError(
                f"feature {self.name!r}: dtype {self.dtype!r} is not one of {', '.join(DTYPES)}"
            )
        if any(size is not None and size < 1 for size in self.shape):
            raise UserError(
                f"feature {self.name!r}: shape {self.shape} holds no value; every size is 1 or "
                "more, and () is a scalar"
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
        if self.default is not None:
            self._check_default(self.default)

    def _check_default(self, default: float | str) -> None:
        where = f"feature {self.name!r}: default={default!r}"
        if self.is_ragged:
            raise UserError(
                f"{where} goes with a fixed shape; of shape (None,), a record without the feature "
                "has an empty list"
            )
        kinds: dict[str, tuple[type, ...]] = {"int64": (int,), "float32": (int, float)}
        if not isinstance(default, kinds.get(self.dtype, (str,))) or isinstance(default, bool):
            raise UserError(f"{where} is no value of dtype {self.dtype}")
        if not isinstance(default, str) and not abs(default) <= _LARGEST_FLOAT32:
            raise UserError(
                f"{where} is no finite float32, and would make the loss of such records NaN; take "
                "a number that the data have not, such as -1.0, or their mean"
            )
        if self.dtype == "int64" and int(default).bit_length() > 63:
            raise UserError(f"{where} does not fit int64")
        if self.vocabulary is not None and not 0 <= int(default) < self.vocabulary_size:
            raise UserError(f"{where} is an id outside [0, {self.vocabulary_size})")

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the one for unknown tokens included; 0 when there is no vocabulary."""
        if self.vocabulary is None:
            return 0
        return self.vocabulary if isinstance(self.vocabulary, int) else len(self.vocabulary) + 1

    @property
    def is_ragged(self) -> bool:
        return None in self.shape

    @property
    def may_be_absent(self) -> bool:
        return self.is_ragged or self.default is not None

    @property
    def size(self) -> int | None:
        """Number of values in one record; None where it differs."""
        fixed = [size for size in self.shape if size is not None]
        return math.prod(fixed) if len(fixed) == len(self.shape) else None

    def schema(self) -> FeatureSchema:
        """Equal for equal records: the default is none of them."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "vocabulary_size": self.vocabulary_size,
            "vocabulary_crc32": self._vocabulary_crc32,
        }

    @property
    def _vocabulary_crc32(self) -> int:
        """Differs for vocabularies of one size: other tokens, or another order, are other ids."""
        tokens = self.vocabulary if isinstance(self.vocabulary, tuple) else ()
        return zlib.crc32("\n".join(tokens).encode())


def _dtype_name(dtype: Any) -> Any:
    """The name of a dtype object of TensorFlow or NumPy, or of a type of Python's."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    return _BY_NAME.get(name, name) if isinstance(name, str) else dtype
