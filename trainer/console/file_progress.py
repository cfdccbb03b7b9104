"""A bar that shows how far a program is with what it reads or writes."""

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class FileProgress:
    def __init__(self, progress: Progress, total: int | None):
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def add(self, done: int, text: str = "") -> None:
        self._progress.update(self._task, advance=done, description=text)

    def write(self, text: str) -> None:
        """Writes a line to stderr, above the bar if there is one."""
        if self._progress.disable:
            print(text, file=sys.stderr)  # noqa: T201 (what it is for)
        else:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def shown(total: int | None, unit: str = "") -> Iterator[FileProgress]:
    """Shows a bar if stderr is a terminal; None is an unknown total, an empty unit bytes."""
    console = Console(stderr=True)
    counted = (
        (MofNCompleteColumn(), TextColumn(unit))
        if unit
        else (DownloadColumn(), TransferSpeedColumn())
    )
    columns = (BarColumn(), *counted, TimeRemainingColumn(), TextColumn("{task.description}"))
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        yield FileProgress(progress, total)
