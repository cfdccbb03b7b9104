"""One field of an experiment that a study varies."""

import dataclasses
import math
import re
from typing import Self

from tfps.errors import UserError

SCALES = ("linear", "log", "reverse_log")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A field with the values it may take: a range, or a list.

    Attributes:
        field: As in `--set`, such as task.learning_rate.
        values: All values, or of a range the least and the greatest.
        scale: Of a range: linear, log or reverse_log; empty for a list.
    """

    field: str
    values: tuple[float | int | str, ...]
    scale: str = ""

    @classmethod
    def between(
        cls, field: str, least: float | int, greatest: float | int, scale: str = "linear"
    ) -> Self:
        """A range: of whole numbers if both its ends are, else of all numbers.

        Args:
            field: As in `--set`.
            least: The least value.
            greatest: The greatest value.
            scale: linear, log or reverse_log.

        Raises:
            UserError: If this is no range.
        """
        if scale not in SCALES:
            raise UserError(f"study: {field}: scale={scale!r}; use one of {', '.join(SCALES)}")
        if not (math.isfinite(least) and math.isfinite(greatest) and least < greatest):
            raise UserError(f"study: {field}: {least} to {greatest} is no range")
        if scale != "linear" and least <= 0:
            raise UserError(f"study: {field}: a {scale} scale begins above 0, not at {least}")
        return cls(field, (least, greatest), scale)

    @classmethod
    def among(cls, field: str, *values: float | int | str) -> Self:
        """A list of numbers, or of texts.

        Args:
            field: As in `--set`.
            *values: All numbers or all texts, two or more.

        Raises:
            UserError: If this is no list.
        """
        kinds = {isinstance(value, str) for value in values}
        if len(set(values)) < 2 or len(set(values)) < len(values) or len(kinds) > 1:
            raise UserError(
                f"study: {field}: {values}; give two or more values, each once, all numbers or all "
                "texts"
            )
        return cls(field, values if True in kinds else tuple(sorted(values)))

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", self.field):
            raise UserError(
                f"study: {self.field!r} is no field; write it as in --set, such as task.dim"
            )

    @property
    def is_continuous(self) -> bool:
        """Whether it is a range of all numbers between its ends."""
        return bool(self.scale) and any(isinstance(value, float) for value in self.values)
