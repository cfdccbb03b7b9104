"""A committed checkpoint."""

import dataclasses
import posixpath
from typing import Any

from tfps.checkpoint.increment import Base, Increment
from tfps.checkpoint.part_file import PartFile
from tfps.leases.queue import QueueState


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a commit marker says.

    Attributes:
        path: The checkpoint's directory.
        steps: Updates of the parameters that it holds.
        queue: State of the lease queue that belongs to them.
        dataset: Identity of the training data that the lease state speaks of.
        signature: What must be equal for the parameters to fit.
        increment: Where rows that it does not hold are; None for a full checkpoint.
        saved_at: When it was committed, seconds since 1970.
        files: The files that hold the parameters.
    """

    path: str
    steps: int
    queue: QueueState
    dataset: dict[str, Any]
    signature: dict[str, Any]
    increment: Increment | None
    saved_at: float
    files: tuple[PartFile, ...]

    @property
    def name(self) -> str:
        """Its directory's name; names sort in the order of the training."""
        return posixpath.basename(self.path)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def base(self) -> Base:
        """The full checkpoint that it needs, or is."""
        return self.increment.base if self.increment else Base(self.name, self.saved_at)
