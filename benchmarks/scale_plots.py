"""Pictures of what it costs to be large; needs matplotlib. See `benchmarks.scale`."""

import pathlib
import textwrap

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_COLUMNS = 3
_FLAT = 10.0  # so many times the least value a figure must exceed for a logarithmic axis


def draw(found: dict, before: dict, directory: pathlib.Path) -> list[pathlib.Path]:
    """Draws each measure, one panel per figure, what was before beside what is now.

    Returns:
        The PNG files.
    """
    files = []
    for name, rows in found.items():
        earlier = {row["what"]: row["by_tasks"] for row in before.get(name, [])}
        columns, lines = min(_COLUMNS, len(rows)), -(-len(rows) // _COLUMNS)
        size = 4.2 * columns, 3.4 * lines
        figure, panels = plt.subplots(lines, columns, figsize=size, squeeze=False)
        for axes in panels.flat[len(rows) :]:
            axes.remove()
        for axes, row in zip(panels.flat, rows, strict=False):
            _draw_row(axes, row, earlier.get(row["what"], {}))
        figure.tight_layout()
        files.append(directory / f"scale_{name}.png")
        figure.savefig(files[-1], dpi=100)
        plt.close(figure)
    return files


def _draw_row(axes: Axes, row: dict, earlier: dict) -> None:
    for label, by_tasks in {"before": earlier, "now": row["by_tasks"]}.items():
        if by_tasks:
            axes.plot([int(each) for each in by_tasks], by_tasks.values(), marker="o", label=label)
    values = [*earlier.values(), *row["by_tasks"].values()]
    axes.set_xscale("log")
    if min(values) > 0 and max(values) > _FLAT * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
    title = row["what"] + (f", {row['unit']}" if row["unit"] else "")
    axes.set_title(textwrap.fill(title, 44), fontsize="small")
    axes.set_xlabel("tasks")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
