"""What the exported model takes on the disk, and the processes that make it: pure data."""

import dataclasses

from tfps.experiment.experiment import FLOAT32, INT8
from tfps.planner.memory import PROCESS_BYTES, WORKING_BYTES, Placement
from tfps.store.layout import StoreLayout
from tfps.store.whole_tables import WHOLE_BYTES, groups_in_slices

_VALUE_BYTES = {FLOAT32: 4, INT8: 1, "bfloat16": 2}
_COPIES = 3  # of what is held whole: as it was read, in the model, and in what is loaded again


@dataclasses.dataclass(frozen=True)
class ExportSize:
    """An exported model.

    Attributes:
        file_bytes: Of its files, at least.
        in_slices: Names of the groups of tables that it does not hold.
    """

    file_bytes: int
    whole_bytes: int
    in_slices: tuple[str, ...]
    dtype: str

    @classmethod
    def of(cls, layout: StoreLayout, dtype: str = FLOAT32) -> "ExportSize":
        """The size of the exported model."""
        indices = groups_in_slices(layout, WHOLE_BYTES if dtype == FLOAT32 else 0)
        dense = 4 * (layout.dense.total + layout.state.whole.total)
        in_slices = whole = 0
        for index, group in enumerate(layout.groups):
            rows, dim = group.layout.total_rows, group.layout.dim
            if index in indices:
                in_slices += rows * (dim * _VALUE_BYTES[dtype] + (4 if dtype == INT8 else 0))
            else:
                whole += sum(table.rows for table in group.layout.tables) * dim * 4
        names = tuple(layout.groups[index].layout.name for index in indices)
        return cls(dense + whole + in_slices, dense + whole, names, dtype)

    @property
    def held_bytes(self) -> int:
        """What the process that exports it holds of it at its peak."""
        return _COPIES * self.whole_bytes

    @property
    def process_bytes(self) -> int:
        """Memory of the process that exports it."""
        return PROCESS_BYTES + WORKING_BYTES + self.held_bytes


def evaluator_bytes(placement: Placement, size: ExportSize) -> int:
    """Memory of an evaluator, which holds whole checkpoints."""
    return placement.all_bytes + size.process_bytes
