"""A geometric series of the updates to come, as a function of an update's number."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

END = 2**31  # no update has this number or a higher one
_MOST, _AT_ONCE = 7168, 64  # ranges
_DEGREE = 8
_TOLERANCE = 1e-7  # of polynomials, as a part of what they are fitted to
# Within a range from 0 to 1: where functions are fitted, and where the fit is tested.
_FITTED = 0.5 * (1 - np.cos(np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE))
_TESTED = 0.5 * (1 - np.cos(np.pi * np.arange(_DEGREE + 1) / _DEGREE))
# The functions of some updates: of their numbers, `[..., functions]`.
Functions = Callable[[np.ndarray], np.ndarray]
_SHORT, _LONG = 2.0, 8.0  # logarithms of what `kept / ratio` grows to within a range
_MOST_LOG = 600.0
_MOST_GROWTH = 12.0  # such a logarithm, for updates in a row in which it falls where it should not
_FLAT = 1e-8  # of an outlook: by how much of itself it may change where it is taken as constant
SHORTEST = 16  # a shorter range is cut into single updates


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Ranges that cover all updates, in their order."""

    starts: np.ndarray  # number of each range's first update, `[k]` int64
    lengths: np.ndarray  # how many updates each has, `[k]` int64
    places: np.ndarray  # where each was fitted, from 0 to below 1, `[k, 8]`; 0 for a single update
    values: np.ndarray  # of the functions there, `[k, 8, functions]`


def cut(
    smooth: Functions,
    single: Functions,
    breaks: Sequence[int],
    noise: float,
    splits: Callable[[np.ndarray, np.ndarray], np.ndarray],
    growth: float = 0.0,
) -> Blocks:
    """Cuts all updates into ranges, until polynomials of degree 7 fit in each."""
    # An outlook has their errors `exp(growth)` times as large: they fit the better for it.
    # The first updates come first: if very many ranges are not enough, the last ones take the mean
    # of some of their updates. Ranges for which `splits` is true, given their lengths `[k]` and
    # values, are cut although they fit.
    starts, ends = _first_ranges(breaks)
    greatest = np.max(np.abs(smooth(starts)), axis=0)
    done: list[Blocks] = []
    count = 0
    while len(starts):
        some = slice(0, _AT_ONCE)
        singles = _singles(single, starts[some], ends[some])
        tolerance = _TOLERANCE * math.exp(-growth)
        tried, fits = _tried(smooth, starts[some], ends[some], tolerance, noise * greatest)
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
    """The sum of a function over a range up to a place, `[k, 9]`: of `powers` of the place."""
    # It is a polynomial whose change from one update to the next is the function.
    lengths = blocks.lengths[:, np.newaxis].astype(float)
    found = np.zeros([len(lengths), _DEGREE + 1])
    is_range = blocks.lengths > 1
    matrix = _changes(blocks.places[is_range], 1 / lengths[is_range], _DEGREE)[:, :, 1:]
    values = blocks.values[is_range, :, function, np.newaxis]
    found[is_range, 1:] = np.linalg.solve(matrix, values)[:, :, 0] * lengths[is_range]
    # A single update has two ends.
    found[~is_range, 1] = blocks.values[~is_range, 0, function]
    return found


def powers(places: np.ndarray, degree: int) -> np.ndarray:
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
    smooth: Functions, starts: np.ndarray, ends: np.ndarray, tolerance: float, noise: np.ndarray
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
    fits = np.all(error <= tolerance * np.abs(wanted) + noise, (1, 2))
    return Blocks(starts, ends - starts, places, values[:, :_DEGREE].copy()), fits


@dataclasses.dataclass(frozen=True)
class Series:
    """What an optimizer's state adds to a parameter in updates without a gradient."""

    ratio: float  # what each update leaves of what the one before added, above 0 and below 1
    # Adam's, if the learning rate and Adam's bias correction multiply what an update adds.
    betas: tuple[float, float] | None = None

    def factor(self, steps: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """What multiplies what updates add, by their numbers and their learning rates."""
        if not self.betas:
            return np.ones_like(rates)
        left_1, left_2 = (_power(beta, steps + 1.0) for beta in self.betas)
        return np.asarray(rates * np.sqrt(-left_2) / -left_1)


class Outlooks:
    """A function of an update's number that sums up a series between any two updates.

    The outlook of update t is `ratio / kept` times the sum of its factor and the outlook of t + 1,
    `kept` being what the update keeps of a parameter. So the sum of `ratio^j * factor * kept`, j
    from 1 on, over the updates from one up to before another, each with what those after it keep,
    is what all of them keep times the outlook of the first, less `ratio^n` times that of the last
    plus one. Many functions have that property; they are apart by multiples of one that grows or
    falls by `kept / ratio` in each update. Taken is the one that is 0 at the end, where that falls
    backwards, or else the one that is 0 at the beginning.

    Within a range there is a polynomial with that property, which the outlook comes close to where
    the range is long for the ratio. A short range has a polynomial that meets the outlook of its
    neighbour.
    """

    def __init__(
        self,
        blocks: Blocks,
        ratio: float,
        factors: np.ndarray,  # at the places where ranges are fitted, `[k, 8]`
        kept: np.ndarray,  # what updates keep of a parameter there, `[k, 8]`
        decline: np.ndarray,  # logarithm of the size of `kept / ratio`, summed over a range, `[k]`
    ):
        # Whether the outlook begins with 0.
        self.is_forward = _greatest_fall(decline) > _MOST_GROWTH
        values = factors
        matrix = (kept - ratio)[:, :, np.newaxis] * powers(blocks.places, _DEGREE)
        matrix -= ratio * changes(blocks, _DEGREE)
        is_single = blocks.lengths == 1
        # What turns the sign in every update is no polynomial.
        is_long = ~is_single & ((np.abs(decline) >= _LONG) | (kept < 0.0).any(1))
        is_short = ~is_single & ~is_long
        # Of places from 0 to 1 within ranges, `[k, 9]`.
        self.polynomials = np.zeros([len(values), _DEGREE + 1])
        met = np.zeros_like(self.polynomials)  # what one more where ranges meet adds to it
        solved = np.linalg.solve(matrix[is_long, :, :-1], ratio * values[is_long, :, np.newaxis])
        self.polynomials[is_long, :-1] = solved[:, :, 0]
        self.polynomials[is_short], met[is_short] = self._short(
            matrix[is_short], ratio * values[is_short]
        )
        self._set_singles(met, is_single, values[:, 0], kept[:, 0], ratio)
        # By how much the outlook is above its polynomial where it meets its neighbour, `[k]`.
        self.apart = np.zeros([len(values)])
        grown = np.exp(np.minimum(decline if self.is_forward else -decline, _MOST_LOG))
        turns = (kept[:, 0] < 0.0) & (blocks.lengths % 2 == 1)
        self._join(met, is_long, np.where(turns, -grown, grown))

    def changes_until(self, starts: np.ndarray) -> int:
        """The first update from which on the outlook changes no more; `starts` are the ranges'."""
        if self.is_forward:  # what it is apart grows within a range
            return END
        firsts = self.polynomials[:, 0]
        changes = np.abs(self.polynomials[:, 1:]).sum(1) + np.abs(self.apart)
        changes += np.abs(firsts - firsts[-1])
        changing = np.flatnonzero(changes > _FLAT * np.abs(firsts[-1]))
        return int(np.append(starts, END)[changing[-1] + 1]) if changing.size else 0

    def _short(self, matrix: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Polynomials that are 0 where ranges meet, and what is added to make them 1 there."""
        place = np.zeros([1]) if self.is_forward else np.ones([1])
        meets = np.broadcast_to(powers(place, _DEGREE), [len(matrix), 1, _DEGREE + 1])
        sides = np.zeros([len(matrix), _DEGREE + 1, 2])
        sides[:, :-1, 0], sides[:, -1, 1] = values, 1.0
        solved = np.linalg.solve(np.concatenate([matrix, meets], 1), sides)
        return solved[:, :, 0], solved[:, :, 1]

    def _set_singles(
        self,
        met: np.ndarray,
        is_single: np.ndarray,
        values: np.ndarray,
        kept: np.ndarray,
        ratio: float,
    ) -> None:
        """The lines between the two ends of single updates."""
        values, kept = values[is_single], kept[is_single]
        if self.is_forward:
            self.polynomials[is_single, 1] = -values
            met[is_single, 0], met[is_single, 1] = 1.0, kept / ratio - 1.0
        else:
            self.polynomials[is_single, 0] = ratio / kept * values
            self.polynomials[is_single, 1] = -ratio / kept * values
            met[is_single, 0], met[is_single, 1] = ratio / kept, 1.0 - ratio / kept

    def _join(self, met: np.ndarray, is_long: np.ndarray, grown: np.ndarray) -> None:
        """Has every range begin where the one before it ends."""
        count, outlook = len(met), 0.0
        if not self.is_forward and is_long[-1]:
            outlook = self.polynomials[-1].sum()
        for index in range(count) if self.is_forward else range(count - 1, -1, -1):
            coefficients = self.polynomials[index]
            coefficients += met[index] * outlook
            ends = (coefficients[0], coefficients.sum())
            meets, other = ends if self.is_forward else ends[::-1]
            if is_long[index]:
                self.apart[index] = outlook - meets
            outlook = other + self.apart[index] * grown[index]


def growth(decline: np.ndarray) -> float:
    """The logarithm of how much an error may grow from one range to another."""
    return min(_greatest_fall(decline), _greatest_fall(-decline))


def exist(decline: np.ndarray) -> bool:
    """Whether outlooks can be computed: they would not grow beyond what float64 holds."""
    return growth(decline) <= _MOST_GROWTH


def _greatest_fall(changes: np.ndarray) -> float:
    """By how much a sum of changes is at most below what it was before."""
    values = np.append(0.0, np.cumsum(changes))
    return float(np.max(np.maximum.accumulate(values) - values))


def cuts(ratio: float, log_kept: int | None) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Which ranges are cut because they are neither short nor long for a ratio."""
    # `log_kept` is the function that is the logarithm of what an update keeps.

    def are_cut(lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
        kept = 0.0 if log_kept is None else values[:, :, log_kept].mean(1)
        decline = np.abs(lengths * (kept - math.log(ratio)))
        return np.asarray((decline > _SHORT) & (decline < _LONG))

    return are_cut


def _power(beta: float, count: np.ndarray) -> np.ndarray:
    """`beta^count - 1`, exact also where it is next to nothing."""
    return np.expm1(count * math.log(beta)) if beta > 0.0 else -np.ones_like(count)
