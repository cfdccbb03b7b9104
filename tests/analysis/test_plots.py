"""Pictures say what they show, and can be read."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

from matplotlib import pyplot as plt

from tfps.analysis import plots
from tfps.analysis.curves import CalibrationCurve, RocCurve
from tfps.analysis.groups import Group
from tfps.analysis.leaving_out import Effect, Explanation, Importance
from tfps.analysis.row_space import Plane

RNG = np.random.default_rng(0)
CHANCES = RNG.random(500).astype("f4")
YES = RNG.random(500) < CHANCES
GROUPS = [Group("north", 1200, 30, 0.1, 0.8), Group("south", 9, 0, 0.1, np.nan)]
DRAWN = {
    "roc": lambda axes: plots.draw_roc(axes, RocCurve.of(YES, CHANCES)),
    "scores": lambda axes: plots.draw_scores(axes, YES, CHANCES),
    "scores that are no chances": lambda axes: plots.draw_scores(axes, YES, 9 * CHANCES - 5),
    "calibration": lambda axes: plots.draw_calibration(axes, CalibrationCurve.of(YES, CHANCES)),
    "counts": lambda axes: plots.draw_counts(axes, CalibrationCurve.of(YES, CHANCES)),
    "groups": lambda axes: plots.draw_groups(axes, GROUPS, 0.79, "region"),
    "importance": lambda axes: plots.draw_importance(
        axes, [Importance("age", 0.2, 0.1, 0.3), Importance("sex", -0.01, -0.02, 0.0)], "AUC"
    ),
    "explanation": lambda axes: plots.draw_explanation(
        axes,
        Explanation(0.9, 0.2, [Effect("age", 0.5, 0.1, 0.6), Effect("job", -0.1, -0.2, 0.0)]),
        {"age": "46"},
    ),
    "plane": lambda axes: plots.draw_plane(
        axes, Plane(RNG.random([12, 2]), (0.5, 0.25)), [f"name {k}" for k in range(12)]
    ),
    "course": lambda axes: plots.draw_course(axes, [(0, 1.0), (5, 0.5)], "Loss", "records", "loss"),
    "numbers": lambda axes: plots.draw_numbers(axes, CHANCES, CHANCES**2),
}


@pytest.fixture
def axes():
    figure, axes = plt.subplots(layout="constrained")
    yield axes
    plt.close(figure)


@pytest.mark.parametrize("name", DRAWN)
def test_each_has_a_title_and_its_axes_have_names(axes, name):
    DRAWN[name](axes)
    axes.figure.draw_without_rendering()
    assert axes.get_title()
    assert axes.get_xlabel()
    assert axes.get_ylabel() or axes.get_yticklabels()[0].get_text()


def test_they_tell_the_figures(axes):
    DRAWN["groups"](axes)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "north (1,200 / 30)",
        "south (9 / 0)",
    ]
    assert "0.7900" in axes.get_title()
    axes.clear()
    DRAWN["explanation"](axes)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["age = 46", "job"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, -0.1]
    colours = {bar.get_facecolor() for bar in axes.patches}
    assert len(colours) == 2
    axes.clear()
    DRAWN["plane"](axes)
    assert "50% of the variance" in axes.get_xlabel()


def test_names_of_points_that_lie_close_stand_apart(axes):
    points = np.array([[0.0, 0.0], [0.01, 0.0], [1.0, 1.0]])
    plots.draw_plane(axes, Plane(points, (0.9, 0.1)), ["first name", "second name", "third name"])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 3
    assert not boxes[0].overlaps(boxes[1])
