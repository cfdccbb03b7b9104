"""Draws what this package finds on the axes of Matplotlib.

The colours are those of Okabe and Ito, which people with any kind of sight tell apart. Nothing of
Matplotlib is loaded here: whoever hands over axes has it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tfps.analysis.curves import CalibrationCurve, RocCurve
from tfps.analysis.groups import Group
from tfps.analysis.leaving_out import Explanation, Importance
from tfps.analysis.row_space import Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
_BINS = 40
_MOST_POINTS = 5000
# Where a name may stand beside its point: right and up, in points of print.
_BESIDE = ((5, 3, "left"), (-5, 3, "right"), (5, -10, "left"), (-5, -10, "right"), (0, 8, "center"))


def draw_roc(axes: "Axes", curve: RocCurve) -> None:
    """The ROC curve, beside that of guessing."""
    axes.plot(curve.false_positives, curve.true_positives, color=BLUE, lw=2, label="the model")
    axes.plot([0, 1], [0, 1], color=GREY, ls="--", label="guessing")
    axes.set(
        title=f"Positives found, at what price (AUC {curve.auc:.4f})",
        xlabel="negatives taken for positives (share)",
        ylabel="positives found (share)",
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
        aspect="equal",
    )
    axes.legend(loc="lower right", frameon=False)


def draw_scores(axes: "Axes", yes: npt.NDArray[np.bool_], scores: npt.NDArray[np.float32]) -> None:
    """How predictions are distributed among positives, and among negatives.

    Args:
        axes: Where to draw.
        yes: Which records are positives, `[n]`.
        scores: What is predicted of them, `[n]`: chances, or any numbers.
    """
    are_chances = bool(((scores >= 0) & (scores <= 1)).all())
    low, high = (0.0, 1.0) if are_chances else (float(scores.min()), float(scores.max()))
    for name, some, colour in (("negatives", ~yes, BLUE), ("positives", yes, ORANGE)):
        count = np.count_nonzero(some)
        axes.hist(
            scores[some],
            bins=np.linspace(low, high, _BINS + 1).tolist(),
            weights=np.full(count, 1.0 / count),
            histtype="step",
            lw=2,
            color=colour,
            label=f"{count:,} {name}",
        )
    axes.set(
        title="What is predicted of positives and of negatives",
        xlabel="predicted chance" if are_chances else "prediction",
        ylabel=f"share of their records, in each of {_BINS} bins",
        xlim=(low, high),
        yscale="log",
    )
    axes.legend(frameon=False)


def draw_calibration(axes: "Axes", curve: CalibrationCurve) -> None:
    """How often a yes came where it was predicted with a chance."""
    held = curve.records > 0
    axes.plot([0, 1], [0, 1], color=GREY, ls="--", label="as predicted")
    axes.plot(curve.predicted[held], curve.observed[held], "o-", color=BLUE, label="the model")
    axes.set(
        title=f"Do chances come true? (mean error {curve.error:.3f})",
        xlabel="predicted chance (mean of a bin)",
        ylabel="positives (share of a bin)",
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
        aspect="equal",
    )
    axes.legend(loc="upper left", frameon=False)


def draw_counts(axes: "Axes", curve: CalibrationCurve) -> None:
    """How many records a calibration curve's bins have."""
    middles = (curve.edges[1:] + curve.edges[:-1]) / 2
    axes.bar(middles, curve.records, width=0.9 * np.diff(curve.edges), color=BLUE)
    for middle, records in zip(middles, curve.records, strict=True):
        axes.annotate(f"{records:,}", (middle, records), ha="center", va="bottom", fontsize=8)
    axes.set(
        title="How many records that is",
        xlabel="predicted chance",
        ylabel="records in a bin",
        xlim=(0, 1),
    )
    axes.margins(y=0.12)


def draw_groups(axes: "Axes", groups: Sequence[Group], whole: float, title: str) -> None:
    """The AUC within each group, with the number of its records and of the positives among them.

    Args:
        axes: Where to draw.
        groups: The groups, from top to bottom; those without an AUC have no point.
        whole: The AUC of all records.
        title: What the groups share.
    """
    places = np.arange(len(groups))
    axes.plot([group.auc for group in groups], places, "o", color=BLUE)
    axes.axvline(whole, color=GREY, ls="--")
    names = [f"{group.name} ({group.records:,} / {group.positives:,})" for group in groups]
    axes.set_yticks(places, names)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.grid(axis="y", color="#dddddd", lw=0.8)
    axes.set(
        title=f"AUC within groups of equal {title} (dashed: all records, {whole:.4f})",
        xlabel="AUC",
        ylabel=f"{title} (records / positives)",
    )


def draw_importance(axes: "Axes", found: Sequence[Importance], metric: str) -> None:
    """What a metric loses when each part is shuffled, from top to bottom."""
    _draw_bars(axes, [(each.part, each.drop, each.low, each.high) for each in found])
    axes.set(
        title="What the model cannot do without",
        xlabel=f"{metric}: how much worse when shuffled (line: least and most of some shuffles)",
    )


def draw_explanation(
    axes: "Axes", found: Explanation, values: Mapping[str, str], most: int = 12
) -> None:
    """What the parts of a record do to its prediction, the largest effect first.

    Args:
        axes: Where to draw.
        found: The explanation.
        values: What is told of a part beside its name.
        most: How many parts are shown.
    """
    shown = found.effects[:most]
    names = [f"{e.part} = {values[e.part]}" if e.part in values else e.part for e in shown]
    _draw_bars(axes, [(n, e.change, e.low, e.high) for n, e in zip(names, shown, strict=True)])
    axes.set(
        title=f"Predicted is {found.prediction:.3f}, usual {found.usual:.3f}",
        xlabel="change of the prediction, by this value in place of others' (line: most of them)",
    )


def draw_plane(axes: "Axes", plane: Plane, names: Sequence[str]) -> None:
    """Rows of an embedding as points, with their names.

    Args:
        axes: Where to draw.
        plane: The points.
        names: Of the rows; none to draw points alone.
    """
    axes.plot(plane.points[:, 0], plane.points[:, 1], "o", color=BLUE, ms=4)
    axes.set(
        title="Rows of the embedding, seen from where they differ most",
        xlabel=f"first principal component ({plane.shares[0]:.0%} of the variance)",
        ylabel=f"second ({plane.shares[1]:.0%})",
    )
    axes.margins(x=0.3, y=0.08)
    _write_names(axes, names, plane.points)


def draw_course(
    axes: "Axes", points: Sequence[tuple[float, float]], title: str, across: str, up: str
) -> None:
    """How a figure went over a run.

    Args:
        axes: Where to draw.
        points: Pairs of where it was measured, and what.
        title: What the figure is.
        across: What it is drawn over, with its unit.
        up: What is measured, with its unit.
    """
    axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=BLUE, ms=3)
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.locator_params(axis="x", nbins=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")


def draw_numbers(
    axes: "Axes", labels: npt.NDArray[np.float32], found: npt.NDArray[np.float32]
) -> None:
    """Numbers that were predicted, over those that came; of many records some are drawn."""
    truth, found = np.reshape(labels, -1), np.reshape(found, -1)
    stride = -(-len(truth) // _MOST_POINTS)
    low, high = float(min(truth.min(), found.min())), float(max(truth.max(), found.max()))
    axes.plot([low, high], [low, high], color=GREY, ls="--", label="as it came")
    axes.plot(truth[::stride], found[::stride], ".", color=BLUE, alpha=0.4, label="a record")
    axes.set(title="What was predicted, and what came", xlabel="label", ylabel="prediction")
    axes.legend(frameon=False)


def _write_names(axes: "Axes", names: Sequence[str], points: npt.NDArray[np.float64]) -> None:
    """Writes a name beside each point, where it covers as little of others as there is a place."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    taken: list[Any] = []
    for name, point in zip(names, points, strict=False):
        tried = [
            axes.annotate(name, point, (x, y), textcoords="offset points", ha=side, fontsize=9)
            for x, y, side in _BESIDE
        ]
        boxes = [text.get_window_extent() for text in tried]
        covered = [sum(_common_area(box, other) for other in taken) for box in boxes]
        best = int(np.argmin(covered))
        for text in tried[:best] + tried[best + 1 :]:
            text.remove()
        taken.append(boxes[best])


def _common_area(a: Any, b: Any) -> float:
    """Of two boxes, in square pixels."""
    across, up = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(float(across), 0.0) * max(float(up), 0.0)


def _draw_bars(axes: "Axes", rows: Sequence[tuple[str, float, float, float]]) -> None:
    """Bars from top to bottom, each with a line from its low to its high."""
    places = np.arange(len(rows))
    values = np.array([value for _, value, _, _ in rows])
    axes.barh(places, values, color=np.where(values < 0, ORANGE, BLUE).tolist(), height=0.7)
    axes.hlines(places, [low for *_, low, _ in rows], [row[3] for row in rows], color="black", lw=1)
    axes.axvline(0.0, color="black", lw=0.8)
    axes.set_yticks(places, [name for name, *_ in rows])
    axes.invert_yaxis()
