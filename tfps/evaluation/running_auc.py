"""The AUC of any number of records in bounded memory."""

import math
from typing import NamedTuple

import numpy as np

from tfps.experiment.metrics import as_binary, auc

EXACT_RECORDS = 1_000_000  # up to so many the AUC is exact; they take 5 bytes each
_MOST_EDGES = 1 << 19


class BoundedAuc(NamedTuple):
    """An AUC, and how far it may be off.

    Attributes:
        value: The area; nan when a class is absent or a prediction is nan.
        bound: Of the distance from the exact area; 0.0 where it is exact.
    """

    value: float
    bound: float


class RunningAuc:
    """Adds up records; keeps their scores up to a number, and from then on counts by score.

    The scores that are kept by then are edges of the counts, 2^19 of them at most, and what lies on
    an edge is counted by itself. So ties of scores that were seen are told from ties of the counts:
    an AUC off scores that go on as they began is off by next to nothing, and one off a few
    different scores is exact. For scores that go elsewhere there are edges all over the float32
    numbers too, 128 of them from each power of two to the next.
    """

    def __init__(self, exact_records: int = EXACT_RECORDS):
        self._exact_records = exact_records
        self._labels: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._records = 0
        self._has_nan = False
        self._edges: np.ndarray | None = None
        self._counts = np.zeros([2, 0], np.int64)  # of negatives and positives, by place

    def add(self, labels: np.ndarray, predictions: np.ndarray) -> None:
        """Adds some records.

        Args:
            labels: 0 or 1, shape `[n]` or `[n, 1]`.
        """
        is_positive, scores = as_binary(labels, predictions)
        self._has_nan = self._has_nan or bool(np.isnan(scores).any())
        if self._has_nan:
            return  # neither is any other score of use
        self._records += len(scores)
        if self._edges is not None:
            self._count(is_positive, scores)
            return
        self._labels.append(is_positive.copy())  # not a view that keeps what it is of
        self._scores.append(scores.copy())
        if self._records > self._exact_records:
            self._begin_to_count()

    def result(self) -> BoundedAuc:
        """The area under the ROC curve of all records, as `metrics.auc` defines it."""
        if self._has_nan:
            return BoundedAuc(math.nan, 0.0)
        if self._edges is None:
            labels, scores = (
                np.concatenate(parts) if parts else np.zeros([0], np.float32)
                for parts in (self._labels, self._scores)
            )
            return BoundedAuc(auc(labels, scores), 0.0)
        negatives, positives = self._counts.astype("f8")
        pairs = negatives.sum() * positives.sum()
        if not pairs:
            return BoundedAuc(math.nan, 0.0)
        below = np.cumsum(negatives) - negatives
        above = float((positives * (below + negatives / 2)).sum())
        # Of pairs between two edges it is not known which is above the other: each is counted as
        # one half, and is at most that much off.
        unknown = float((positives[::2] * negatives[::2]).sum()) / 2
        return BoundedAuc(above / pairs, unknown / pairs)

    def _begin_to_count(self) -> None:
        labels, scores = np.concatenate(self._labels), np.concatenate(self._scores)
        self._labels, self._scores = [], []
        seen = np.unique(scores)
        stride = -(-len(seen) // _MOST_EDGES) or 1
        self._edges = np.union1d(seen[::stride], _edges_everywhere().astype(scores.dtype))
        self._counts = np.zeros([2, 2 * len(self._edges) + 1], np.int64)
        self._count(labels, scores)

    def _count(self, is_positive: np.ndarray, scores: np.ndarray) -> None:
        """Counts scores: place 2k + 1 is edge k, and the even ones are between two edges."""
        assert self._edges is not None
        order = np.argsort(scores)  # a search for one score after the next finds the edges at hand
        scores, is_positive = scores[order], is_positive[order]
        left = np.searchsorted(self._edges, scores)
        is_on_edge = self._edges[np.minimum(left, len(self._edges) - 1)] == scores
        np.add.at(self._counts, (is_positive.astype(np.intp), 2 * left + is_on_edge), 1)


def _edges_everywhere() -> np.ndarray:
    """The float32 numbers whose last 16 bits are zero, 65,281 with both infinities, in no order."""
    numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    return np.unique(numbers[~np.isnan(numbers)])
