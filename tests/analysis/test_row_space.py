"""Where rows lie to each other."""

import numpy as np
import pytest

from tfps.analysis.row_space import nearest_rows, plane_of


def test_the_nearest_rows_are_those_of_the_same_direction_however_long():
    rows = [[1, 0], [5, 0.1], [0, 2], [-3, 0], [0, 0]]
    found = nearest_rows(rows, 0, 10)
    assert [neighbour.row for neighbour in found] == [1, 2, 4, 3]
    assert found[0].cosine == pytest.approx(5 / np.hypot(5, 0.1))
    assert [neighbour.cosine for neighbour in found[1:]] == [0.0, 0.0, -1.0]
    assert nearest_rows(rows, 0, 1) == found[:1]


def test_a_plane_is_found_again_wherever_it_lies():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(50, 2)) * [5.0, 1.0]
    turned, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    rows = flat @ turned[:2] + 3.0
    plane = plane_of(rows)
    assert sum(plane.shares) == pytest.approx(1.0)
    assert plane.shares[0] > plane.shares[1]
    distances = [
        np.linalg.norm(points[:, None] - points[None], axis=2) for points in (rows, plane.points)
    ]
    np.testing.assert_allclose(*distances, atol=1e-9)


def test_equal_rows_give_equal_pictures():
    rows = np.random.default_rng(1).normal(size=(9, 4))
    np.testing.assert_allclose(plane_of(rows).points, plane_of(rows[:, ::-1]).points, atol=1e-9)
    for axis in plane_of(rows).points.T:
        assert axis[np.abs(axis).argmax()] > 0


def test_rows_of_one_value_lie_on_a_line_and_equal_rows_in_a_point():
    line = plane_of([[1.0], [2.0], [4.0]])
    assert line.shares == (pytest.approx(1.0), 0.0)
    assert line.points[:, 1].tolist() == [0.0, 0.0, 0.0]
    assert plane_of(np.ones([3, 4])).shares == (0.0, 0.0)
    with pytest.raises(ValueError, match="1 rows span no plane"):
        plane_of([[1.0, 2.0]])
