"""Ranges of updates within which functions of an update's number are polynomials."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from tfps.optimizers.schedule_rates import END

SHORTEST = 16  # a shorter range is cut into single updates
_MOST, _AT_ONCE = 7168, 64  # ranges
_DEGREE = 8
_TOLERANCE = 1e-7
# Within a range from 0 to 1: where functions are fitted, and where the fit is tested.
_FITTED = 0.5 * (1 - np.cos(np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE))
_TESTED = 0.5 * (1 - np.cos(np.pi * np.arange(_DEGREE + 1) / _DEGREE))


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Ranges that cover all updates, in their order.

    Attributes:
        starts: Number of each range's first update, `[k]` int64.
        lengths: How many updates each has, `[k]` int64.
        places: Where each was fitted, from 0 to below 1, `[k, 8]`; zeros for a single update.
        values: What the functions are there, `[k, 8, functions]`.
    """

    starts: np.ndarray
    lengths: np.ndarray
    places: np.ndarray
    values: np.ndarray


# The functions of some updates: of their numbers, `[..., functions]`.
Functions = Callable[[np.ndarray], np.ndarray]


def cut(
    smooth: Functions,
    single: Functions,
    breaks: Sequence[int],
    noise: float,
    splits: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Blocks:
    """Cuts all updates into ranges, until polynomials of degree 7 fit in each.

    The first updates come first: if very many ranges are not enough, the last ones take the mean of
    some of their updates.

    Args:
        splits: Given ranges' lengths `[k]` and values `[k, 8, functions]`, which are cut all the
            same.
    """
    starts, ends = _first_ranges(breaks)
    greatest = np.max(np.abs(smooth(starts)), axis=0)
    done: list[Blocks] = []
    count = 0
    while len(starts):
        some = slice(0, _AT_ONCE)
        singles = _singles(single, starts[some], ends[some])
        tried, fits = _tried(smooth, starts[some], ends[some], noise * greatest)
        is_cut = ~fits | splits(tried.lengths, tried.values)
        if count + len(starts) >= _MOST:
            tried.values[is_cut] = tried.values[is_cut].mean(1, keepdims=True)
            is_cut[:] = False
        kept = Blocks(*(array[~is_cut] for array in dataclasses.astuple(tried)))
        done += [singles, kept]
        count += len(singles.starts) + len(kept.starts)
        first, last = tried.starts[is_cut], (tried.starts + tried.lengths)[is_cut]
        middle = (first + last) // 2
        starts = np.concatenate([np.sort(np.concatenate([first, middle])), starts[_AT_ONCE:]])
        ends = np.concatenate([np.sort(np.concatenate([middle, last])), ends[_AT_ONCE:]])
    parts = [dataclasses.astuple(blocks) for blocks in done]
    arrays = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    order = np.argsort(arrays[0])
    return Blocks(*(array[order] for array in arrays))


def sums(blocks: Blocks, function: int) -> np.ndarray:
    """The sum of a function over a range's updates up to a place, `[k, 9]`, as `polynomial` takes.

    It is a polynomial whose change from one update to the next is the function.
    """
    lengths = blocks.lengths[:, np.newaxis].astype(float)
    found = np.zeros([len(lengths), _DEGREE + 1])
    is_range = blocks.lengths > 1
    matrix = _changes(blocks.places[is_range], 1 / lengths[is_range], _DEGREE)[:, :, 1:]
    values = blocks.values[is_range, :, function, np.newaxis]
    found[is_range, 1:] = np.linalg.solve(matrix, values)[:, :, 0] * lengths[is_range]
    # A single update has two ends.
    found[~is_range, 1] = blocks.values[~is_range, 0, function]
    return found


def polynomial(coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Polynomials `[k, n]` at places `[k]`."""
    return np.asarray((coefficients * x[:, np.newaxis] ** np.arange(coefficients.shape[1])).sum(1))


def powers(places: np.ndarray, degree: int) -> np.ndarray:
    """`[k, p, degree + 1]` of places `[k, p]`."""
    return np.asarray(places[..., np.newaxis] ** np.arange(degree + 1))


def changes(blocks: Blocks, degree: int) -> np.ndarray:
    """By how much each power of a place changes up to the next update, `[k, 8, degree + 1]`."""
    steps = 1 / blocks.lengths[:, np.newaxis]
    return steps[:, :, np.newaxis] * _changes(blocks.places, steps, degree)


def _changes(places: np.ndarray, step: np.ndarray, degree: int) -> np.ndarray:
    """`((x + step)^k - x^k) / step` without cancellation, `[k, p, degree + 1]`."""
    columns = [np.zeros_like(places)]
    for power in range(1, degree + 1):
        terms = (
            math.comb(power, i) * places ** (power - i) * step ** (i - 1)
            for i in range(1, power + 1)
        )
        columns.append(sum(terms, np.zeros_like(places)))
    return np.stack(columns, -1)


def _first_ranges(breaks: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Each twice as long as the one before it, cut at breaks."""
    edges = [0, END, *(2**power for power in range(4, 31)), *breaks]
    cuts = np.unique(np.clip(np.array(edges, np.int64), 0, END))
    return cuts[:-1], cuts[1:]


def _singles(single: Functions, starts: np.ndarray, ends: np.ndarray) -> Blocks:
    """The updates of those ranges that are too short to be fitted."""
    is_short = ends - starts < SHORTEST
    ranges = zip(starts[is_short], ends[is_short], strict=True)
    numbers = np.concatenate([np.zeros(0, np.int64), *(np.arange(*each) for each in ranges)])
    values = np.repeat(single(numbers)[:, np.newaxis], _DEGREE, 1)
    places = np.zeros([len(numbers), _DEGREE])
    return Blocks(numbers, np.ones(len(numbers), np.int64), places, values)


def _tried(
    smooth: Functions, starts: np.ndarray, ends: np.ndarray, noise: np.ndarray
) -> tuple[Blocks, np.ndarray]:
    """Ranges that are long enough, the functions' values, and whether polynomials fit these."""
    is_long = ends - starts >= SHORTEST
    starts, ends = starts[is_long], ends[is_long]
    lengths = (ends - starts)[:, np.newaxis]
    fitted, tested = (
        np.minimum((part * lengths).astype(np.int64), lengths - 1) for part in (_FITTED, _TESTED)
    )
    values = smooth(starts[:, np.newaxis] + np.concatenate([fitted, tested], 1))
    places = fitted / lengths
    inverse = np.linalg.inv(powers(places, _DEGREE - 1))
    weights = powers(tested / lengths, _DEGREE - 1) @ inverse
    wanted = values[:, _DEGREE:]
    error = np.abs(weights @ values[:, :_DEGREE] - wanted)
    fits = np.all(error <= _TOLERANCE * np.abs(wanted) + noise, (1, 2))
    return Blocks(starts, ends - starts, places, values[:, :_DEGREE].copy()), fits
