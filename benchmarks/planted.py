"""Who likes what, planted: users and items of which most are seen seldom."""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

USERS, ITEMS = 6000, 4000
_FACTORS = 6
Columns = dict[str, npt.NDArray[np.generic]]


class Truth(NamedTuple):
    """What likes depend on, the same for every seed.

    Attributes:
        of_users: `[USERS, factors]` float64.
        of_items: `[ITEMS, factors]` float64.
        quality: Of the items, `[ITEMS]` float64.
    """

    of_users: npt.NDArray[np.float64]
    of_items: npt.NDArray[np.float64]
    quality: npt.NDArray[np.float64]

    def chances(self, user: npt.NDArray[Any], item: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The probabilities that users like items, int64 of shapes that broadcast together."""
        product = (self.of_users[user] * self.of_items[item]).sum(-1)
        affinity = product / _FACTORS**0.5 + self.quality[item]
        return 1 / (1 + np.exp(-1.5 * affinity))


@functools.cache
def truth() -> Truth:
    """What likes depend on."""
    draw = np.random.default_rng(7)
    of_users, of_items = (draw.standard_normal((n, _FACTORS)) for n in (USERS, ITEMS))
    return Truth(of_users, of_items, draw.standard_normal(ITEMS))


def likes(seed: int, count: int) -> Columns:
    """Draws records.

    Args:
        seed: Of the records.
        count: Their number.

    Returns:
        `user`, `item` (int64) and `liked` (float32, 0 or 1), each `[count]`.
    """
    draw = np.random.default_rng([seed, 11])
    user, item = (draw.choice(n, count, p=shares(n)) for n in (USERS, ITEMS))
    liked = draw.random(count) < truth().chances(user, item)
    return {"user": user, "item": item, "liked": liked.astype(np.float32)}


def shares(ids: int) -> npt.NDArray[np.float64]:
    """The share of each id in the records, which falls as by Zipf's law, exponent 0.8."""
    weights = 1.0 / np.arange(1, ids + 1) ** 0.8
    return weights / weights.sum()
