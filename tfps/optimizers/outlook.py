"""A geometric series of the updates to come, as a function of an update's number."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tfps.optimizers import step_blocks
from tfps.optimizers.step_blocks import Blocks

_DEGREE = 8
_SHORT, _LONG = 2.0, 8.0  # logarithms of what `kept / ratio` grows to within a range
_MOST_LOG = 600.0
_MOST_GROWTH = 12.0  # such a logarithm, for updates in a row in which it falls where it should not


@dataclasses.dataclass(frozen=True)
class Series:
    """What an optimizer's state adds to a parameter in updates without a gradient.

    Attributes:
        ratio: What each update leaves of what the one before it added, above 0 and below 1.
        betas: If the learning rate of an update and Adam's bias correction multiply what it adds,
            Adam's `beta_1` and `beta_2`.
    """

    ratio: float
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
    the range is long for the ratio. One that is short has a polynomial that meets the outlook of
    the range beside it.

    Attributes:
        polynomials: `[k, 9]`, of places from 0 to 1 within ranges.
        apart: By how much the outlook is above its polynomial where it meets the next range, or the
            one before, `[k]`.
        is_forward: Whether it begins with 0.
    """

    def __init__(
        self,
        blocks: Blocks,
        ratio: float,
        factors: np.ndarray,
        kept: np.ndarray,
        decline: np.ndarray,
    ):
        """Computes them.

        Args:
            factors: At the places where ranges are fitted, `[k, 8]`.
            kept: What updates keep of a parameter there, `[k, 8]`.
            decline: The logarithm of the size of `kept / ratio`, summed over each range, `[k]`.
        """
        self.is_forward = _greatest_fall(decline) > _MOST_GROWTH
        values = factors
        matrix = (kept - ratio)[:, :, np.newaxis] * step_blocks.powers(blocks.places, _DEGREE)
        matrix -= ratio * step_blocks.changes(blocks, _DEGREE)
        is_single = blocks.lengths == 1
        # What turns the sign in every update is no polynomial.
        is_long = ~is_single & ((np.abs(decline) >= _LONG) | (kept < 0.0).any(1))
        is_short = ~is_single & ~is_long
        self.polynomials = np.zeros([len(values), _DEGREE + 1])
        met = np.zeros_like(self.polynomials)  # what one more where ranges meet adds to it
        solved = np.linalg.solve(matrix[is_long, :, :-1], ratio * values[is_long, :, np.newaxis])
        self.polynomials[is_long, :-1] = solved[:, :, 0]
        self.polynomials[is_short], met[is_short] = self._short(
            matrix[is_short], ratio * values[is_short]
        )
        self._set_singles(met, is_single, values[:, 0], kept[:, 0], ratio)
        self.apart = np.zeros([len(values)])
        grown = np.exp(np.minimum(decline if self.is_forward else -decline, _MOST_LOG))
        turns = (kept[:, 0] < 0.0) & (blocks.lengths % 2 == 1)
        self._join(met, is_long, np.where(turns, -grown, grown))

    def _short(self, matrix: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Polynomials that are 0 where ranges meet, and what is added to make them 1 there."""
        place = np.zeros([1]) if self.is_forward else np.ones([1])
        meets = np.broadcast_to(step_blocks.powers(place, _DEGREE), [len(matrix), 1, _DEGREE + 1])
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


def exist(decline: np.ndarray) -> bool:
    """Whether outlooks can be computed: they would not grow beyond what float64 holds."""
    return min(_greatest_fall(decline), _greatest_fall(-decline)) <= _MOST_GROWTH


def _greatest_fall(changes: np.ndarray) -> float:
    """By how much a sum of changes is at most below what it was before."""
    values = np.append(0.0, np.cumsum(changes))
    return float(np.max(np.maximum.accumulate(values) - values))


def cuts(ratio: float, log_kept: int | None) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Which ranges are cut because they are neither short nor long for a ratio.

    Args:
        log_kept: Which function is the logarithm of what an update keeps; None for none.
    """

    def are_cut(lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
        kept = 0.0 if log_kept is None else values[:, :, log_kept].mean(1)
        decline = np.abs(lengths * (kept - math.log(ratio)))
        return np.asarray((decline > _SHORT) & (decline < _LONG))

    return are_cut


def _power(beta: float, count: np.ndarray) -> np.ndarray:
    """`beta^count - 1`, exact also where it is next to nothing."""
    return np.expm1(count * math.log(beta)) if beta > 0.0 else -np.ones_like(count)
