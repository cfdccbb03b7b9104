"""Each metric beside the plainest computation there is: every order of equal predictions."""

import itertools
import math

import numpy as np
import pytest

import tfps
from tests.experiment.test_metrics import brute_force_auc
from tfps.errors import UserError


def orders(labels, scores):
    """The labels in every order that ranks no lower prediction above a higher one."""
    ties = [labels[scores == score] for score in sorted(set(scores), reverse=True)]
    for order in itertools.product(*(itertools.permutations(tie) for tie in ties)):
        yield list(itertools.chain(*order))


def hit_rate(ranked, k):
    return float(any(ranked[:k]))


def recall(ranked, k):
    return sum(ranked[:k]) / sum(ranked)


def discounted_gain(ranked, k):
    return sum(gain / math.log2(2 + place) for place, gain in enumerate(ranked[:k]))


def ndcg(ranked, k):
    return discounted_gain(ranked, k) / discounted_gain(sorted(ranked, reverse=True), k)


def reciprocal_rank(ranked, k):
    return 1 / (1 + ranked.index(1))


def mean_over_orders(measure, k, labels, scores):
    return np.mean([measure(ranked, k) for ranked in orders(labels, scores)])


def drawn(seed, groups=40, largest=6, distinct=3):
    """Groups of up to six records, many of which are tied; their records lie among each other."""
    generator = np.random.default_rng(seed)
    of = np.repeat(np.arange(groups) * 7 - 20, generator.integers(1, largest + 1, groups))
    of = generator.permutation(of)
    scores = generator.integers(0, distinct, len(of)).astype("f4") / 3
    return generator.integers(0, 2, len(of)), scores, of


def by_group(labels, scores, of):
    return [(labels[of == each], scores[of == each]) for each in np.unique(of)]


AT_K = [
    (lambda k: tfps.HitRate(k), hit_rate),
    (lambda k: tfps.RecallAtK(k), recall),
    (lambda k: tfps.NDCG(k), ndcg),
    (lambda k: tfps.MeanReciprocalRank(), reciprocal_rank),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 2, 4, 10])
@pytest.mark.parametrize(("metric", "measure"), AT_K)
def test_a_metric_is_the_mean_over_groups_and_over_the_orders_of_ties(metric, measure, k, seed):
    records = drawn(seed)
    expected = [
        mean_over_orders(measure, k, labels, scores)
        for labels, scores in by_group(*records)
        if labels.any()
    ]
    assert 0 < len(expected) < len(np.unique(records[2]))
    assert metric(k)(*records) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("k", [2, 4])
def test_labels_of_ndcg_may_be_graded(k):
    generator = np.random.default_rng(5)
    _, scores, of = drawn(5)
    labels = generator.integers(0, 4, len(of))
    expected = [
        mean_over_orders(ndcg, k, stars, found)
        for stars, found in by_group(labels, scores, of)
        if stars.any()
    ]
    assert tfps.NDCG(k)(labels, scores, of) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_grouped_auc_weighs_that_of_each_group_by_its_records(seed):
    records = drawn(seed, largest=30, distinct=8)
    both = [(x, y) for x, y in by_group(*records) if 0 < x.sum() < len(x)]
    expected = np.average(
        [brute_force_auc(x, y) for x, y in both], weights=[len(x) for x, _ in both]
    )
    assert tfps.GroupAUC()(*records) == pytest.approx(expected, abs=1e-12)


ALL = [
    tfps.HitRate(2),
    tfps.RecallAtK(2),
    tfps.NDCG(2),
    tfps.MeanReciprocalRank(),
    tfps.GroupAUC(),
]


@pytest.mark.parametrize("metric", ALL)
def test_neither_the_order_of_records_nor_the_kind_of_id_matters(metric):
    labels, scores, of = drawn(1)
    expected = metric(labels, scores, of)
    mixed = np.random.default_rng(0).permutation(len(of))
    assert metric(labels[mixed], scores[mixed], of[mixed]) == pytest.approx(expected, abs=1e-14)
    names = np.array([f"user {each}".encode() for each in of], object)
    columns = [np.reshape(each, [-1, 1]) for each in (labels.astype("f4"), scores, names)]
    assert metric(*columns) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("metric", ALL)
def test_what_is_not_defined_is_nan(metric):
    assert math.isnan(metric([], [], []))
    assert math.isnan(metric([0, 0], [0.1, 0.2], [1, 1]))
    assert math.isnan(metric([0, 1], [0.1, math.nan], [1, 1]))


@pytest.mark.parametrize(
    ("metric", "left_out", "needs"),
    [(tfps.HitRate(2), 1, "a positive"), (tfps.GroupAUC(), 2, "both a positive and a negative")],
)
def test_groups_that_are_left_out_are_counted(metric, left_out, needs):
    labels, scores, of = [1, 0, 0, 0, 1], [0.9, 0.1, 0.3, 0.2, 0.5], [1, 1, 2, 2, 3]
    assert metric.mean(labels, scores, of) == (1.0, 3, left_out, needs)


@pytest.mark.parametrize("metric", ALL)
def test_wrong_input_is_refused(metric):
    with pytest.raises(ValueError, match="2 labels, 2 predictions and 1 ids of groups"):
        metric([0, 1], [0.1, 0.2], [1])
    with pytest.raises(ValueError, match="a label is "):
        metric([0, -1], [0.1, 0.2], [1, 1])
    with pytest.raises(ValueError, match="put it under the label's name"):
        metric({"clicked": [0, 1]}, [0.1, 0.2], [1, 1])


def test_of_no_ranks_there_is_no_metric():
    with pytest.raises(UserError, match=r"HitRate\(k=0\): k must be at least 1"):
        tfps.HitRate(0)


def test_one_tie_of_many_records_is_ranked_exactly():
    """As of a model that has learnt nothing: the place of the positive is any of a million."""
    count = 1_000_000
    labels, same = np.zeros(count), np.zeros(count)
    labels[7] = 1
    assert tfps.HitRate(10)(labels, same, same) == pytest.approx(10 / count, rel=1e-6)
    expected = (1 / np.arange(1, count + 1)).mean()
    assert tfps.MeanReciprocalRank()(labels, same, same) == pytest.approx(expected, rel=1e-6)
    assert tfps.GroupAUC()(labels, same, same) == 0.5
