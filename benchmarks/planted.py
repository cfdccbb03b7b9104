"""Who likes what, planted: users and items of which most are seen seldom."""

import numpy as np
import numpy.typing as npt

USERS, ITEMS = 6000, 4000
_FACTORS = 6
Columns = dict[str, npt.NDArray[np.generic]]


def likes(seed: int, count: int) -> Columns:
    """Draws records; what likes depend on is the same for every seed.

    Args:
        seed: Of the records.
        count: Their number.

    Returns:
        `user`, `item` (int64) and `liked` (float32, 0 or 1), each `[count]`.
    """
    truth = np.random.default_rng(7)
    of_users, of_items = (truth.standard_normal((n, _FACTORS)) for n in (USERS, ITEMS))
    quality = truth.standard_normal(ITEMS)
    draw = np.random.default_rng([seed, 11])
    user, item = (_seldom(draw, n, count) for n in (USERS, ITEMS))
    affinity = (of_users[user] * of_items[item]).sum(1) / _FACTORS**0.5 + quality[item]
    liked = draw.random(count) < 1 / (1 + np.exp(-1.5 * affinity))
    return {"user": user, "item": item, "liked": liked.astype(np.float32)}


def _seldom(draw: np.random.Generator, ids: int, count: int) -> npt.NDArray[np.int64]:
    """Ids whose share falls with their number as by Zipf's law, exponent 0.8."""
    shares = 1.0 / np.arange(1, ids + 1) ** 0.8
    return draw.choice(ids, count, p=shares / shares.sum())
