"""Where the rows of an embedding lie to each other."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Neighbour(NamedTuple):
    """A row near another.

    Attributes:
        row: Its number among the rows that were given.
        cosine: Of the angle between both, in [-1, 1]; 1 for the same direction.
    """

    row: int
    cosine: float


class Plane(NamedTuple):
    """Rows as points of a plane.

    Attributes:
        points: `[n, 2]`.
        shares: Of the rows' variance, what each of the two axes shows.
    """

    points: npt.NDArray[np.float64]
    shares: tuple[float, float]


def nearest_rows(rows: npt.ArrayLike, row: int, count: int) -> list[Neighbour]:
    """The rows whose direction is nearest to one row's, the nearest first, itself left out.

    Args:
        rows: `[n, dim]`, compared with one row only: of large tables too.
        row: Number of the row.
        count: How many at most.
    """
    values = np.asarray(rows, "f8")
    lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(values[row])
    dots = values @ values[row]
    found = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
    order = [int(k) for k in np.argsort(-found, kind="stable") if k != row]
    return [Neighbour(k, float(np.clip(found[k], -1.0, 1.0))) for k in order[:count]]


def plane_of(rows: npt.ArrayLike) -> Plane:
    """The plane in which rows differ most: their first two principal components.

    Which side of an axis is which has no meaning, so that each axis is turned to have the value
    farthest from 0 on its positive side: equal rows give equal pictures.

    Args:
        rows: `[n, dim]`, two rows or more.

    Raises:
        ValueError: If there are fewer than two rows.
    """
    values = np.asarray(rows, "f8")
    if len(values) < 2:
        raise ValueError(f"{len(values)} rows span no plane")
    centred = values - values.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros([len(values), 2])
    axes = min(2, len(sizes))
    points[:, :axes] = left[:, :axes] * sizes[:axes]
    for axis in points.T:
        if axis[np.abs(axis).argmax()] < 0:
            axis *= -1.0
    total = float((sizes**2).sum())
    first, second, *_ = [*(float(size**2 / total) if total else 0.0 for size in sizes), 0.0, 0.0]
    return Plane(points, (first, second))
