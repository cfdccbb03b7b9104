"""Records ranked within groups, and the chances of where one of equal predictions stands."""

from typing import NamedTuple, Self

import numpy as np


class Ranking(NamedTuple):
    """The records of all groups, ranked: per group, and per tie, neighbours of equal predictions.

    Attributes:
        size: Records of each group, `[groups]` int64.
        gain: Sum of their labels, `[groups]`.
        group: The group of each tie, in the order of ranks, `[ties]` int64.
        above: Records of its group that are ranked above it, `[ties]` int64.
        tied: Its records, `[ties]` int64.
        tied_gain: Sum of their labels, `[ties]`.
    """

    size: np.ndarray
    gain: np.ndarray
    group: np.ndarray
    above: np.ndarray
    tied: np.ndarray
    tied_gain: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> Self:
        """Ranks records.

        Args:
            labels: `[n]`, n at least 1.
            scores: `[n]`, without nan.
            groups: Numbers of the records' groups, from 0 without gaps, `[n]` int64.
        """
        order = np.lexsort((-scores, groups))
        labels, scores, groups = labels[order], scores[order], groups[order]
        begins_group = np.diff(groups, prepend=-1) != 0
        begins_tie = begins_group.copy()
        begins_tie[1:] |= scores[1:] != scores[:-1]
        first_of_group, first = np.flatnonzero(begins_group), np.flatnonzero(begins_tie)
        return cls(
            size=np.diff(first_of_group, append=len(order)),
            gain=np.add.reduceat(labels, first_of_group),
            group=groups[first],
            above=first - first_of_group[groups[first]],
            tied=np.diff(first, append=len(order)),
            tied_gain=np.add.reduceat(labels, first),
        )

    def sum_by_group(self, values: np.ndarray) -> np.ndarray:
        """The sum `[groups]` of values `[ties]`."""
        return np.bincount(self.group, values, len(self.size))

    def first_with_positive(self) -> np.ndarray:
        """Of each group that has a positive, in order, the first tie that holds one, `[found]`."""
        with_positive = np.flatnonzero(self.tied_gain > 0)
        return with_positive[np.diff(self.group[with_positive], prepend=-1) != 0]


class LogFactorials:
    """Chances of drawing without replacement, by the logarithms of factorials."""

    def __init__(self, most: int):
        # As exact as there is: of millions, those of neighbours differ by little.
        numbers = np.arange(1, most + 1, dtype=np.longdouble)
        self._of = np.concatenate([[0.0], np.cumsum(np.log(numbers))])

    def none_drawn(self, among: np.ndarray, positives: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """The chance that none of some positives is drawn; all arguments have its shape `[n]`.

        Args:
            draws: How many are drawn, at most all.
        """
        negatives = (among - positives).astype("i8")
        is_possible = draws <= negatives
        draws = np.where(is_possible, draws, 0)
        logarithm = self._of[negatives] - self._of[negatives - draws]
        logarithm += self._of[among - draws] - self._of[among]
        return np.where(is_possible, np.exp(logarithm), 0.0).astype("f8")
