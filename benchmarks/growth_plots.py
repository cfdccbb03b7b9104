"""Pictures of how cost grows; needs matplotlib. See `benchmarks.growth`."""

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.growth_cases import AXES, CLUSTER, Case, floor
from benchmarks.results import CPU, Results
from benchmarks.table import SPEED

_NAMES = {"workers": "workers", "ps": "ps", "rows": "rows of all tables", "batch": "batch"}


def draw(
    results: Results[Case], axes: list[str], step_seconds: float, directory: pathlib.Path
) -> pathlib.Path:
    """Draws a row of panels for speed and one for CPU time; a column for each axis.

    Args:
        results: What was measured.
        axes: Which columns.
        step_seconds: That a step waits: more speed than its waiting allows there cannot be.
        directory: Where to.

    Returns:
        The PNG file.
    """
    figure, panels = plt.subplots(2, len(axes), figsize=(3.6 * len(axes), 6.5), squeeze=False)
    for column, axis in enumerate(axes):
        for row, key in enumerate((SPEED, CPU)):
            _panel(panels[row, column], results, axis, key, step_seconds)
    panels[0, 0].set_ylabel("examples/s")
    panels[1, 0].set_ylabel("CPU-seconds per million examples")
    figure.tight_layout()
    file = directory / "growth.png"
    figure.savefig(file, dpi=100)
    plt.close(figure)
    return file


def _panel(axes: Axes, results: Results[Case], axis: str, key: str, step_seconds: float) -> None:
    swept = "workers" if axis == "line" else axis
    style: Any = {"color": "black", "linestyle": "--", "linewidth": 1}
    lines: dict[int, list[Case]] = {}
    for case in AXES[axis]:
        lines.setdefault(case.gbits, []).append(case)
    for gbits, cases in lines.items():
        label = (f"{gbits} Gbit/s, 0.5 ms" if gbits else "loopback") if axis == "line" else None
        spreads = [results.spread(case, CLUSTER, key) for case in cases]
        medians = [spread.median for spread in spreads]
        reach = [
            [spread.median - spread.least for spread in spreads],
            [spread.greatest - spread.median for spread in spreads],
        ]
        values = [getattr(case, swept) for case in cases]
        axes.errorbar(values, medians, reach, marker="o", capsize=3, label=label)
    cases = lines[0]
    values = [getattr(case, swept) for case in cases]
    if key == CPU:
        axes.plot(values, [floor(results, case) for case in cases], label="floor", **style)
    else:
        most = [case.workers * case.batch / step_seconds for case in cases]
        axes.plot(values, most, label="steps that only wait", **style)
    axes.set_xscale("log")
    is_log = axis == "batch" or (swept == "workers" and key == SPEED)
    axes.set_yscale("log" if is_log else "linear")
    axes.set_xticks(values, [f"{value:,}" if value < 1e4 else f"{value:.0e}" for value in values])
    axes.set_xticks([], minor=True)
    if not is_log:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(_NAMES[swept])
    axes.grid(axis="y", which="both", alpha=0.3)
    axes.legend(fontsize="x-small")
