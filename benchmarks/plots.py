"""A picture of each sweep; needs matplotlib, nothing else."""

import pathlib
import statistics
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.cases import STEP, SWEEPS, SYSTEMS, WIRE, Case, Sweep
from benchmarks.results import Results
from benchmarks.table import CPU, SPEED, compares

_TITLES = {SPEED: "examples/s", CPU: "CPU-seconds per million examples"}
_LABELS = {"rows": "rows per table", "batch": "records per step of a worker"}
_MARKED_DIGITS = "2346"  # that numbers between powers of ten begin with
_COLUMNS = 9  # of the legend
_SHADES = [*plt.get_cmap("tab20").colors, *plt.get_cmap("tab20b").colors]
_COLORS = dict(zip(SYSTEMS, _SHADES[: len(SYSTEMS)], strict=True))
_SHOWN = [system for system in SYSTEMS if system != WIRE]  # it trains nothing: see the floor


def draw(results: Results, directory: pathlib.Path) -> list[pathlib.Path]:
    """Draws every sweep of which something was measured.

    Returns:
        The PNG files.
    """
    files = []
    for name, sweep in SWEEPS.items():
        cases = [case for case in sweep.cases if case in results.cases()]
        if len(cases) < min(2, len(sweep.cases)) or not compares(results, sweep):
            continue
        figure, panels = plt.subplots(1, 2, figsize=(12, 4.5))
        for axes, key in zip(panels, (SPEED, CPU), strict=True):
            draw_in = _bars if sweep.is_named else _lines
            draw_in(axes, results, cases, sweep, key)
            if key == CPU:
                _floor(axes, results, cases, sweep)
            axes.set_title(_TITLES[key])
            axes.grid(axis="y", which="both", alpha=0.3)
        handles, labels = panels[1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=_COLUMNS, fontsize="x-small")
        figure.suptitle(f"{sweep.title} (medians; bars from the least to the greatest run)")
        figure.tight_layout(rect=(0, 0.02 + 0.045 * -(-len(labels) // _COLUMNS), 1, 1))
        files.append(directory / f"benchmark_{name}.png")
        figure.savefig(files[-1], dpi=110)
        plt.close(figure)
    return files


def _lines(axes: Axes, results: Results, cases: list[Case], sweep: Sweep, key: str) -> None:
    for system in _SHOWN:
        measured = [case for case in cases if (case, system) in results.runs]
        if len(measured) < 2:
            continue
        values = [getattr(case, sweep.field) for case in measured]
        heights, errors = _spreads(results, measured, system, key)
        axes.errorbar(
            values, heights, errors, label=system, color=_COLORS[system], marker="o", capsize=3
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    swept = [getattr(case, sweep.field) for case in cases]
    axes.set_xticks(swept, [f"{value:,}" for value in swept])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(_LABELS[sweep.field])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_minor_formatter(
        lambda value, _: f"{value:,.0f}" if f"{value:.0e}"[0] in _MARKED_DIGITS else ""
    )


def _bars(axes: Axes, results: Results, cases: list[Case], sweep: Sweep, key: str) -> None:
    measured_on = {
        system: [case for case in cases if (case, system) in results.runs] for system in _SHOWN
    }
    shown = {system: measured for system, measured in measured_on.items() if measured}
    width = 0.8 / len(shown)
    for place, (system, measured) in enumerate(shown.items()):
        centers = [cases.index(case) + (place - (len(shown) - 1) / 2) * width for case in measured]
        heights, errors = _spreads(results, measured, system, key)
        axes.bar(
            centers, heights, width, yerr=errors, label=system, color=_COLORS[system], capsize=2
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), [getattr(case, sweep.field) for case in cases])


def _floor(axes: Axes, results: Results, cases: list[Case], sweep: Sweep) -> None:
    """What a cluster needs at least: beside lines a line, beside bars one as wide as they are."""
    floors = {case: list(results.floor(case).values()) for case in cases}
    medians = {case: statistics.median(found) for case, found in floors.items() if found}
    if not medians:
        return
    style: Any = {"color": "black", "linestyle": "--", "label": f"floor: {STEP} and {WIRE}"}
    if not sweep.is_named:
        places = [getattr(case, sweep.field) for case in medians]
        axes.plot(places, list(medians.values()), **style)
        return
    for case, least in medians.items():
        place = cases.index(case)
        axes.hlines(least, place - 0.4, place + 0.4, **style)


def _spreads(
    results: Results, cases: list[Case], system: str, key: str
) -> tuple[list[float], list[list[float]]]:
    """Medians, and how far below and above them the runs reach."""
    spreads = [results.spread(case, system, key) for case in cases]
    medians = [spread.median for spread in spreads]
    below = [spread.median - spread.least for spread in spreads]
    return medians, [below, [spread.greatest - spread.median for spread in spreads]]
