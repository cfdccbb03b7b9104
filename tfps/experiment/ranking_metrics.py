"""Exact metrics of how an evaluation's records are ranked within groups, such as those of a user.

The records of a group are ranked by their predictions, the highest first. Where predictions are
equal, every order of their records counts as equally likely, and a metric is its mean over these
orders (McSherry and Najork, "Computing information retrieval performance measures efficiently in
the presence of tied scores", ECIR 2008): no value depends on the order in which data lie.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tfps import arguments
from tfps.errors import UserError


class Ranking(NamedTuple):
    """The records of all groups, ranked: per group, and per tie, neighbours of equal predictions.

    By group: records `size` (int64) and sum of labels `gain`, `[groups]`. By tie, in the order of
    ranks: its group, records of the group `above` it, and `tied` ones (int64), and their sum of
    labels, `[ties]`.
    """

    size: np.ndarray
    gain: np.ndarray
    group: np.ndarray
    above: np.ndarray
    tied: np.ndarray
    tied_gain: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> Self:
        """Ranks labels and scores `[n]` without nan, groups `[n]` int64 from 0 without gaps."""
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
        """The chance that none of some positives is drawn, all `[n]`; `draws` at most all."""
        negatives = (among - positives).astype("i8")
        is_possible = draws <= negatives
        draws = np.where(is_possible, draws, 0)
        logarithm = self._of[negatives] - self._of[negatives - draws]
        logarithm += self._of[among - draws] - self._of[among]
        return np.where(is_possible, np.exp(logarithm), 0.0).astype("f8")


class GroupMean(NamedTuple):
    """A metric's mean over groups; those without a defined value are `left_out`."""

    value: float
    groups: int
    left_out: int
    needs: str


class GroupSums(NamedTuple):
    """Sums for a metric's mean over groups, to be added; undefined ones are `left_out`."""

    total: float = 0.0
    weight: float = 0.0
    groups: int = 0
    left_out: int = 0

    def plus(self, other: "GroupSums") -> "GroupSums":
        """Those of these groups and of others."""
        return GroupSums(
            self.total + other.total,
            self.weight + other.weight,
            self.groups + other.groups,
            self.left_out + other.left_out,
        )


class GroupedMetric(abc.ABC):
    """A mean over groups, which `Task.group()` names.

    A group for which the metric is not defined is left out of the mean, as the literature does; an
    evaluation logs how many are.

    Attributes:
        needs: What a group must have, for people.
    """

    needs: ClassVar[str] = "a positive"

    def __call__(
        self, labels: npt.ArrayLike, predictions: npt.ArrayLike, groups: npt.ArrayLike
    ) -> float:
        """The value of `mean`, of the same arguments."""
        return self.mean(labels, predictions, groups).value

    def mean(
        self, labels: npt.ArrayLike, predictions: npt.ArrayLike, groups: npt.ArrayLike
    ) -> GroupMean:
        """The metric of an evaluation.

        Args:
            labels: 0 or 1, shape `[n]` or `[n, 1]`.
            predictions: Any scores, of the same shape; higher means more likely 1.
            groups: The group's id of each record, of the same shape and any dtype.

        Raises:
            ValueError: If the sizes differ or a label is not what it may be.
        """
        truth, scores, ids = self.flat(labels, predictions, groups)
        if not len(truth) or np.isnan(scores).any():
            return self.mean_of(GroupSums())
        numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
        return self.mean_of(self.sums(truth, scores, numbers))

    def flat(
        self, labels: npt.ArrayLike, predictions: npt.ArrayLike, groups: npt.ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The arguments of `mean` as `[n]`; raises ValueError as it does."""
        if isinstance(labels, Mapping) or isinstance(predictions, Mapping):
            raise ValueError(
                "it ranks by one prediction of one label, but there are several: put it under the "
                "label's name"
            )
        truth, scores, ids = (np.asarray(x).reshape(-1) for x in (labels, predictions, groups))
        if not len(truth) == len(scores) == len(ids):
            raise ValueError(
                f"{len(truth)} labels, {len(scores)} predictions and {len(ids)} ids of groups"
            )
        self._check_labels(truth)
        return truth, scores, ids

    def sums(self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> GroupSums:
        """Sums over complete groups; arguments as `flat` gives them, scores without nan."""
        # As floats, for unsigned numbers have no negatives.
        values, weights = self.by_group(labels.astype("f8"), scores.astype("f8"), groups)
        defined = ~np.isnan(values)
        return GroupSums(
            float((values[defined] * weights[defined]).sum()),
            float(weights[defined].sum()),
            len(values),
            int(np.count_nonzero(~defined)),
        )

    def mean_of(self, sums: GroupSums) -> GroupMean:
        """The mean that follows from sums over all groups; nan where none has a value."""
        value = sums.total / sums.weight if sums.weight else math.nan
        return GroupMean(value, sums.groups, sums.left_out, self.needs)

    @abc.abstractmethod
    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The metric of each group, nan where undefined, and their weights; as of `Ranking.of`."""

    def _check_labels(self, labels: np.ndarray) -> None:
        """Refuses labels that the metric is not meant for."""
        if not ((labels == 0) | (labels == 1)).all():
            raise ValueError("a label is neither 0 nor 1")


@dataclasses.dataclass(frozen=True)
class _AtK(GroupedMetric):
    """A metric of the first `k` ranks of each group."""

    k: int

    def __post_init__(self) -> None:
        arguments.check_fields(self, f"{type(self).__name__}(): ")
        if self.k < 1:
            raise UserError(f"{self}: k must be at least 1")


class HitRate(_AtK):
    """HR@k: the share of groups with a positive among the first `k` ranks.

    As in He et al., "Neural Collaborative Filtering", WWW 2017, where each user has one positive.
    """

    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `GroupedMetric`."""
        ranking = Ranking.of(labels, scores, groups)
        first = ranking.first_with_positive()
        reached = np.clip(self.k - ranking.above[first], 0, ranking.tied[first])
        none_before = LogFactorials(int(ranking.tied[first].max(initial=0)))
        missed = none_before.none_drawn(ranking.tied[first], ranking.tied_gain[first], reached)
        return _of_groups(ranking, first, 1.0 - missed), np.ones(len(ranking.size))


class RecallAtK(_AtK):
    """Recall@k: the share of a group's positives that are among the first `k` ranks."""

    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `GroupedMetric`."""
        ranking = Ranking.of(labels, scores, groups)
        reached = np.clip(self.k - ranking.above, 0, ranking.tied)
        found = ranking.sum_by_group(ranking.tied_gain * reached / ranking.tied)
        return _quotient(found, ranking.gain), np.ones(len(found))


class NDCG(_AtK):
    """NDCG@k: the discounted gain of the first `k` ranks, by that of the best ranking.

    `DCG = sum of label / log2(1 + rank)` over these ranks (Järvelin and Kekäläinen, "Cumulated
    gain-based evaluation of IR techniques", TOIS 2002). Labels may be any numbers from 0 on; for
    the gain 2^label - 1 of Burges et al., ICML 2005, which for 0 and 1 is the same, let the data
    hold that.
    """

    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `GroupedMetric`."""
        found = self._discounted_gain(Ranking.of(labels, scores, groups))
        best = self._discounted_gain(Ranking.of(labels, labels, groups))
        return _quotient(found, best), np.ones(len(found))

    def _discounted_gain(self, ranking: Ranking) -> np.ndarray:
        ranks = np.arange(1, 1 + min(self.k, int(ranking.size.max())))
        discounts = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(1.0 + ranks))])
        begin, end = (
            np.minimum(bound, len(ranks)) for bound in (ranking.above, ranking.above + ranking.tied)
        )
        of_tie = ranking.tied_gain / ranking.tied * (discounts[end] - discounts[begin])
        return ranking.sum_by_group(of_tie)

    def _check_labels(self, labels: np.ndarray) -> None:
        if not (np.isfinite(labels) & (labels >= 0)).all():
            raise ValueError("a label is below 0 or no finite number")


@dataclasses.dataclass(frozen=True)
class MeanReciprocalRank(GroupedMetric):
    """MRR: the mean of 1 / rank of a group's first positive (Voorhees, TREC-8, 1999)."""

    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `GroupedMetric`."""
        ranking = Ranking.of(labels, scores, groups)
        first = ranking.first_with_positive()
        # The mean of 1 / rank over the places that the tie's first positive may have.
        places = (ranking.tied[first] - ranking.tied_gain[first]).astype("i8") + 1
        tie = np.repeat(first, places)
        place = np.arange(len(tie)) - np.repeat(np.cumsum(places) - places, places)
        none_before = LogFactorials(int(ranking.tied[first].max(initial=0)))
        drawn = ranking.tied[tie], ranking.tied_gain[tie]
        chance = none_before.none_drawn(*drawn, place) - none_before.none_drawn(*drawn, place + 1)
        reciprocal = chance / (ranking.above[tie] + place + 1)
        found = np.bincount(ranking.group[tie], reciprocal, len(ranking.size))
        return _of_groups(ranking, first, found[ranking.group[first]]), np.ones(len(found))


@dataclasses.dataclass(frozen=True)
class GroupAUC(GroupedMetric):
    """GAUC: the AUC within each group, weighted by its number of records.

    As in Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018: groups
    with positives alone, or negatives alone, are left out. A tie counts one half.
    """

    needs: ClassVar[str] = "both a positive and a negative"

    def by_group(
        self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `GroupedMetric`."""
        ranking = Ranking.of(labels, scores, groups)
        negatives = ranking.size - ranking.gain
        of_tie = ranking.tied - ranking.tied_gain
        up_to = np.cumsum(of_tie) - (np.cumsum(negatives) - negatives)[ranking.group]
        below = negatives[ranking.group] - up_to
        won = ranking.sum_by_group(ranking.tied_gain * (below + of_tie / 2))
        return _quotient(won, ranking.gain * negatives), ranking.size.astype("f8")


def _of_groups(ranking: Ranking, ties: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of some ties' groups as those of all groups, nan elsewhere."""
    found = np.full(len(ranking.size), np.nan)
    found[ranking.group[ties]] = values
    return found


def _quotient(dividend: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    return np.divide(dividend, divisor, out=np.full(len(divisor), np.nan), where=divisor > 0)
