"""Which dataset comes after another, where datasets appear while a run trains."""

import posixpath
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tfps.data import manifest
from tfps.data.manifest import FILE
from tfps.data.training_data import is_pattern, numbered
from tfps.errors import UserError
from tfps.storage import files
from tfps.storage.paths import is_cloud

_UNFINISHED_SECONDS = 60.0


class Names(Protocol):
    """Which dataset comes after another."""

    def after(self, last: str, note: Callable[[str], None]) -> str | None:
        """The next dataset's name, "" for `last` before the first; None while it is not there."""

    def directory(self, name: str) -> str:
        """Where a dataset is."""

    def wanted(self, last: str) -> str:
        """What `after` waits for, for messages."""


class NumberedNames:
    """Datasets that a pattern names by their number: 1, 2, 3 and so on, none left out."""

    def __init__(self, pattern: str):
        self._pattern = pattern

    def after(self, last: str, note: Callable[[str], None]) -> str | None:
        name = self._next(last)
        return name if manifest.is_in(self.directory(name)) else None

    def directory(self, name: str) -> str:
        return numbered(self._pattern, self._number(name))

    def wanted(self, last: str) -> str:
        return posixpath.join(self.directory(self._next(last)), FILE)

    def _next(self, last: str) -> str:
        return str(self._number(last or "0") + 1)

    def _number(self, name: str) -> int:
        if not name.isdecimal():  # of a checkpoint
            raise UserError(
                f"--data.train={self._pattern}: the job has trained the dataset {name!r} of a "
                "directory, so numbers do not continue it; name the directory again, or another "
                "--job_dir"
            )
        return int(name)


class ListedNames:
    """Datasets in directories of a directory, by the order of their names.

    A name that sorts before one that was taken is too late, and never taken. One without a manifest
    is waited for, a minute at most once there is a later one with it. Names that begin with `.` or
    `_` are passed over.
    """

    def __init__(
        self,
        directory: str,
        unfinished_seconds: float = _UNFINISHED_SECONDS,
        is_finished: Callable[[str], bool] = manifest.is_in,
    ):
        self._directory = directory
        self._patience = unfinished_seconds
        self._is_finished = is_finished
        self._seen: set[str] | None = None  # in the last listing
        self._held_up: dict[str, float] = {}  # since when a name without a manifest has been

    def after(self, last: str, note: Callable[[str], None]) -> str | None:
        try:
            found = [name for name in files.names(self._directory) if name[0] not in "._"]
        except FileNotFoundError:  # as on gs://, where an empty directory is none
            return None
        known = set(found) if self._seen is None else self._seen
        for name in found:
            if name <= last and name not in known:
                note(f"{self.directory(name)} came after {last}, before which it sorts: not taken")
        self._seen = set(found)
        return self._first([name for name in found if name > last], note)

    def directory(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def wanted(self, last: str) -> str:
        behind = f" with a name behind {last!r}" if last else ""
        return f"a dataset in {self._directory}{behind}"

    def _first(self, names: Sequence[str], note: Callable[[str], None]) -> str | None:
        """The first that has a manifest, unless one before it may still get one."""
        now, behind = time.monotonic(), []
        for name in names:
            if self._is_finished(self.directory(name)):
                break
            behind.append(name)
        else:
            return None
        self._held_up = {each: self._held_up.get(each, now) for each in behind}
        if any(now - since < self._patience for since in self._held_up.values()):
            return None
        for each in behind:
            note(
                f"{self.directory(each)} has had no {FILE} for {self._patience:.0f} s, "
                f"and {name} behind it has: not taken"
            )
        self._held_up = {}
        return name


def poll_seconds(directory: str) -> float:
    """Seconds between two looks whether something new is in a directory."""
    return 3.0 if is_cloud(directory) else 1.0


def names_of(named: str) -> Names:
    """The names of datasets that `data.train` follows: those of a pattern, or in a directory."""
    if "," in named:
        raise UserError(
            f"--data.train={named} with data.follow_seconds: a list does not grow; name the "
            "directory in which datasets appear, or a pattern with {epoch} for their numbers"
        )
    if is_pattern(named):
        return NumberedNames(named)
    if manifest.is_in(named):
        raise UserError(
            f"--data.train={named} is a dataset itself, and data.follow_seconds takes those in a "
            "directory as they appear: name the directory above it, or leave out follow_seconds"
        )
    return ListedNames(named)
