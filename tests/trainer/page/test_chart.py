"""Charts are well-formed, whatever they show."""

import xml.etree.ElementTree as ElementTree

import pytest

from trainer.page.chart import HEIGHT, WIDTH, Chart, Mark, Series, thinned

HOSTILE = '"><script>alert(1)</script>&'


def drawn(chart):
    """The picture's elements by their tag."""
    found = {}
    for element in ElementTree.fromstring(chart.svg()).iter():
        found.setdefault(element.tag, []).append(element)
    return found


def test_a_chart_has_its_curves_axes_and_marks_within_the_picture():
    series = [
        Series("training", [(x * 100, 1 / (x + 1)) for x in range(50)]),
        Series("evaluation", [(1000, 0.5), (4900, 0.1)], 1, has_dots=True),
    ]
    marks = [Mark(2000, "fault", "ps 0 lost"), Mark(1e9, "fault", "after the last point")]
    found = drawn(Chart("Loss", "records trained", series, marks=marks))
    assert len(found["path"]) == 2
    assert [x.findtext("title") for x in found["circle"]] == ["evaluation: 0.5", "evaluation: 0.1"]
    assert [x.findtext("title") for x in found["line"] if "mark" in x.get("class")] == ["ps 0 lost"]
    assert "records trained" in [x.text for x in found["text"]]
    for circle in found["circle"]:
        assert 0 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < HEIGHT


@pytest.mark.parametrize(
    "points", [[(5.0, 3.0)], [(0.0, 0.0), (0.0, 0.0)], [(1, 1e-12), (2, 1e12)]]
)
@pytest.mark.parametrize("are_steps", [False, True])
def test_few_or_strange_points_are_drawn(points, are_steps):
    assert drawn(Chart("c", "x", [Series("s", points, are_steps=are_steps)]))["path"]


def test_what_is_no_number_is_counted_and_not_drawn():
    nothing = Series("auc", [(1, float("nan")), (2, float("inf"))], has_dots=True)
    assert Chart("auc", "x", [nothing]).is_empty
    chart = Chart("c", "x", [nothing, Series("loss", [(1, 0.5), (2, -float("inf"))])])
    assert (chart.is_empty, chart.left_out) == (False, 3)
    assert len(drawn(chart)["path"]) == 1


def test_texts_that_would_touch_are_left_out():
    points = [(75.0, 1.0), (185.0, 2.0)]
    found = drawn(Chart("c", "time", [Series("s", points)], x_unit="seconds"))
    texts = [x.text for x in found["text"] if x.text.endswith("min")]
    assert texts == ["3:30 min", "2:30 min", "2 min", "1:30 min", "1 min"]


def test_names_are_text():
    chart = Chart(
        HOSTILE,
        HOSTILE,
        [Series(HOSTILE, [(0, 1)], has_dots=True)],
        marks=[Mark(0, HOSTILE, HOSTILE)],
    )
    assert "script" not in drawn(chart)
    assert "<script" not in chart.svg()


def test_of_many_points_the_extremes_stay():
    points = [(float(x), 0.0) for x in range(100_000)]
    points[77_777] = (77_777.0, 9.0)
    points[12_345] = (12_345.0, -9.0)
    found = thinned(points, 300)
    assert len(found) <= 301
    assert {points[77_777], points[12_345]} <= set(found)
    assert found == sorted(found)
