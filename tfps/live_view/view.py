"""Draws how far a run is, as the lines of a terminal."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfps import byte_size
from tfps.live_view.status import UP, RunStatus, TaskStatus

_COLUMNS = ("task", "state", "records", "waits", "cores", "memory")
_LEFT = ("task", "state")  # aligned
_BETWEEN = (0, 2, 0, 0)
_HEADING = 3  # lines
_LEFT_FOR_LINES = 3  # of a terminal, those that the view leaves to what is written above it
_LEAST_TASKS = 3


class LiveBlock:
    """Says what to write so that a block of lines is replaced, or stays below what is written.

    Its lines must be narrower than the terminal: what a terminal breaks cannot be erased.
    """

    def __init__(self) -> None:
        self._lines: Sequence[str] = ()

    @property
    def is_shown(self) -> bool:
        return bool(self._lines)

    def replace(self, lines: Sequence[str]) -> str:
        """What makes other lines the block; no lines take it away."""
        erased = self.erased()
        self._lines = lines
        return f"{erased}{self.drawn()}"

    def below(self, text: str) -> str:
        """What writes a text, which ends with its line, above the block."""
        return f"{self.erased()}{text}{self.drawn()}"

    def erased(self) -> str:
        """What takes the block off the terminal, on which it is the last."""
        if not self._lines:
            return ""
        above = len(self._lines) - 1
        return f"\r\x1b[{above}A\x1b[J" if above else "\r\x1b[K"

    def drawn(self) -> str:
        """What puts the block on the terminal, at the beginning of a line."""
        return "\n".join(self._lines)


def draw(status: RunStatus, columns: int, rows: int, has_colour: bool) -> list[str]:
    """The view of a run: a bar with the figures of its epoch, and a line for each task.

    Where not all tasks fit into the `rows` of the terminal, the others are counted.
    """
    room = max(_LEAST_TASKS, rows - _HEADING - _LEFT_FOR_LINES - 1)
    if len(status.tasks) > room + 1:
        status = status.cut(room)
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(columns - 1, 1),
        force_terminal=has_colour,
        color_system="standard" if has_colour else None,
        no_color=not has_colour,
        legacy_windows=False,
    )
    console.print(_heading(status))
    console.print(_plain(status.figures), no_wrap=True, overflow="ellipsis")
    if status.tasks:
        console.print(_tasks(status.tasks, console.width))
    if status.more_tasks:
        more = f"and {status.more_tasks} more, which are up"
        console.print(_plain(more, "dim"), no_wrap=True, overflow="ellipsis")
    return [line.rstrip() for line in file.getvalue().splitlines()]


def _heading(status: RunStatus) -> Table:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    total = max(status.records_of_epoch, 1)
    title = _plain(f"{status.config}, {status.mode}, {status.place}", "bold")
    bar = ProgressBar(total=total, completed=min(status.records, total), complete_style="cyan")
    grid.add_row(title, bar, _plain(f"{status.records / total:.0%}"))
    return grid


def _tasks(tasks: tuple[TaskStatus, ...], room: int) -> Table:
    """A line for each task, with as many of its figures as there is room for."""
    grid = Table.grid(padding=_BETWEEN)
    rows = [dict(zip(_COLUMNS, _cells(task), strict=True)) for task in tasks]
    shown: list[str] = []
    for name in _COLUMNS:
        room -= max(len(name), *(len(row[name]) for row in rows)) + _BETWEEN[1]
        if room < 0 and shown:
            break
        shown.append(name)
        justify = "left" if name in _LEFT else "right"
        grid.add_column(no_wrap=True, overflow="crop", justify=justify)  # type: ignore[arg-type]
    grid.add_row(*(_plain(name, "dim") for name in shown))
    for task, row in zip(tasks, rows, strict=True):
        state = "green" if task.state == UP else "bold red"
        grid.add_row(*(_plain(row[name], state if name == "state" else "") for name in shown))
    return grid


def _cells(task: TaskStatus) -> tuple[str, ...]:
    return (
        task.name,
        task.state.replace("_", " "),
        "" if task.share is None else f"{task.share:.1%}",
        "" if task.idle is None else f"{task.idle:.1%}",
        "" if task.cores is None else f"{task.cores:.2f}",
        "" if task.memory_bytes is None else byte_size.show(task.memory_bytes),
    )


def _plain(text: str, style: str = "") -> Text:
    """A text as it is; what cannot be printed, which would steer the terminal, is left out."""
    return Text("".join(each for each in text if each.isprintable()), style)
