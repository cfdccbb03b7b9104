"""Looks whether what a job writes fits on the disk, before it spends hours for it."""

import dataclasses
import shutil
from collections.abc import Mapping

from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.memory import Placement
from tfps.store.layout import StoreLayout


@dataclasses.dataclass(frozen=True)
class JobDisk:
    """What a job that trains keeps on the disk of its job_dir.

    Attributes:
        export_bytes: Of a version of the exported model; 0 where none is exported there.
    """

    checkpoint_bytes: int
    checkpoints: int
    export_bytes: int
    exports: int

    @classmethod
    def of(
        cls, layout: StoreLayout, keep_checkpoints: int, export_bytes: int, keep_exports: int
    ) -> "JobDisk":
        """What a job keeps."""
        checkpoint = Placement.of(layout, workers=1).all_bytes
        exports = keep_exports + 1 if export_bytes else 0
        return cls(checkpoint, keep_checkpoints + 1, export_bytes, exports)

    @property
    def at_once(self) -> dict[str, int]:
        """What must have room for any of it to be of use: bytes by what it is, for messages."""
        export = {"the export": self.export_bytes} if self.export_bytes else {}
        return {"a checkpoint": self.checkpoint_bytes, **export}

    @property
    def all_bytes(self) -> int:
        """What is kept in the end, with what is being written."""
        return self.checkpoints * self.checkpoint_bytes + self.exports * self.export_bytes

    def __str__(self) -> str:
        """For people, as `4 checkpoints of 2 GiB and 3 exports of 1 GiB, 11 GiB in all`."""
        said = f"{self.checkpoints} checkpoints of {byte_size.show(self.checkpoint_bytes)}"
        if self.exports:
            said += f" and {self.exports} exports of {byte_size.show(self.export_bytes)}"
        return f"{said}, {byte_size.show(self.all_bytes)} in all"


def free_bytes(directory: str) -> int | None:
    """What is free where a directory lies; None in a bucket, which has room."""
    return None if "://" in directory else shutil.disk_usage(directory).free


def check_disk_space(job_dir: str, needed: Mapping[str, int]) -> None:
    """Refuses a local job_dir that has no room for what is to be written there.

    Args:
        needed: Bytes of each thing, by what it is, for the message.
    """
    free = free_bytes(job_dir)
    if free is None or sum(needed.values()) <= free:
        return
    takes = " and ".join(f"{what} takes {byte_size.show(size)}" for what, size in needed.items())
    raise UserError(
        f"--job_dir={job_dir}: {takes}, but its disk has {byte_size.show(free)} left; delete what "
        "is not needed, or name a directory on another disk"
    )
