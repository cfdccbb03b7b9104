"""What a checkpoint that holds only touched rows needs of another."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Base:
    """A full checkpoint that increments build on.

    Attributes:
        name: Its directory's name.
        saved_at: When it was committed, which tells it from another of the same name.
    """

    name: str
    saved_at: float


@dataclasses.dataclass(frozen=True)
class RowRun:
    """Rows of a group of tables of which an increment holds some.

    Attributes:
        tensor: Name of the group's tensor.
        first: First row, in the group's logical order.
        end: The row after the last.
        touched: How many of them the increment holds.
    """

    tensor: str
    first: int
    end: int
    touched: int


@dataclasses.dataclass(frozen=True)
class Increment:
    """The part of a checkpoint in which it differs from a full one.

    Attributes:
        base: The last full checkpoint, which holds all other rows.
        tensors: Names of the groups of which only rows touched since then are held.
        runs: Where those rows are: for each group in the order of its rows.
    """

    base: Base
    tensors: tuple[str, ...]
    runs: tuple[RowRun, ...]

    def offsets(self, tensor: str) -> list[tuple[int, RowRun]]:
        """The runs of a group, each with the number of touched rows before it."""
        found, before = [], 0
        for run in self.runs:
            if run.tensor == tensor:
                found.append((before, run))
                before += run.touched
        return found

    def touched(self, tensor: str) -> int:
        """How many rows of a group are held."""
        return sum(run.touched for run in self.runs if run.tensor == tensor)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Increment":
        """From what `dataclasses.asdict` gave."""
        runs = tuple(RowRun(**run) for run in data["runs"])
        return cls(Base(**data["base"]), tuple(data["tensors"]), runs)


def numbers_name(tensor: str) -> str:
    """Name of the tensor that holds the touched rows' numbers, `[touched]` int64, ascending."""
    return f"{tensor}/touched"


def values_name(tensor: str) -> str:
    """Name of the tensor that holds their values and slots, `[touched, width]`."""
    return f"{tensor}/touched/values"


def slice_specs(touched: int, width: int, first: int, count: int) -> tuple[str, str]:
    """A run of the two tensors as `tf.raw_ops.SaveV2` and `RestoreV2` want it.

    Args:
        touched: Rows of both tensors.
        width: Values of a row, slots included.
        first: The run's first row.
        count: Its number of rows.
    """
    return f"{touched} {first},{count}", f"{touched} {width} {first},{count}:-"
