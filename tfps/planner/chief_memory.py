"""What a worker, and the chief's machine, need of memory; and whether that machine has it."""

import dataclasses

from tfps import byte_size
from tfps.errors import UserError
from tfps.experiment.experiment import FLOAT32
from tfps.planner.export_size import ExportSize
from tfps.planner.memory import PROCESS_BYTES, WORKING_BYTES, Placement

_PARTS = {
    "export": "{} of it for the model that is exported (--train.export=none exports none)",
    "export with tables": "{} of it for the model that is exported (--train.export=none exports "
    "none, and --train.export_dtype=bfloat16 or int8 holds no table for it)",
    "worker": "{} of it for the worker beside it (--nochief_works leaves that out)",
    "parameters": "{} of it for parameters, which several ps would share (--workers and --ps of "
    "python -m cloud.local, or a cluster)",
}


def worker_bytes(placement: Placement) -> int:
    """Memory of a worker, beside its batches."""
    return PROCESS_BYTES + placement.graph.worker_bytes


@dataclasses.dataclass(frozen=True)
class ChiefMemory:
    """What the chief's machine needs, of a cluster or of a job in one process.

    Attributes:
        export_bytes: Of the exported model, held for a moment; 0 where none is exported.
        worker_bytes: Of the worker beside the chief; 0 without one.
    """

    process_bytes: int
    parameter_bytes: int
    export_bytes: int
    tables_in_slices: bool
    worker_bytes: int

    @classmethod
    def of(
        cls, placement: Placement, export: ExportSize | None, has_parameters: bool, works: bool
    ) -> "ChiefMemory":
        """What it needs.

        Args:
            export: Of the model that is exported; None for none.
            has_parameters: Whether the chief holds them, as on one ps.
        """
        process = PROCESS_BYTES + WORKING_BYTES
        return cls(
            process_bytes=process,
            parameter_bytes=placement.needed_bytes(0) - process if has_parameters else 0,
            export_bytes=export.held_bytes if export else 0,
            tables_in_slices=export is not None and export.dtype != FLOAT32,
            worker_bytes=worker_bytes(placement) if works else 0,
        )

    @property
    def needed_bytes(self) -> int:
        """All of it."""
        held = self.parameter_bytes + self.export_bytes + self.worker_bytes
        return self.process_bytes + held

    def check(self, limit: int, who: str) -> None:
        """Refuses a machine that has too little.

        Args:
            limit: The memory it may have, bytes.
        """
        if self.needed_bytes <= limit:
            return
        export = "export" if self.tables_in_slices else "export with tables"
        parts = {
            "parameters": self.parameter_bytes,
            export: self.export_bytes,
            "worker": self.worker_bytes,
        }
        told = [_PARTS[part].format(byte_size.show(size)) for part, size in parts.items() if size]
        raise UserError(
            f"{who} needs about {byte_size.show(self.needed_bytes)}, but may have "
            f"{byte_size.show(limit)}; give it more memory, or have it need less"
            + "".join(f"; {each}" for each in told)
        )
