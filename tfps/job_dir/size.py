"""How many workers and ps a run has, and what its chief leaves to the launcher to change that."""

import json
import pathlib
from typing import NamedTuple

VARIABLE = "TFPS_NEW_SIZE"  # the file in which a launcher looks, where it can change the size


class Size(NamedTuple):
    """Numbers of tasks; a worker next to the chief is not counted."""

    workers: int
    ps: int

    def __str__(self) -> str:
        workers = f"{self.workers} worker{'s' if self.workers != 1 else ''}"
        return f"{workers} and {self.ps} ps" if self.ps else workers


def leave(path: str, size: Size) -> None:
    """Leaves the size that a run is to have to its launcher."""
    pathlib.Path(path).write_text(json.dumps(size), encoding="utf-8")


def found(path: pathlib.Path) -> Size:
    """The size that a chief has left; FileNotFoundError without one."""
    return Size(*json.loads(path.read_text(encoding="utf-8")))
