"""The AUC within groups."""

import math

import numpy as np
import pytest

from tfps.analysis.groups import auc_by_group
from tfps.experiment import metrics


def test_it_is_the_auc_of_the_records_of_each_group():
    rng = np.random.default_rng(1)
    names = rng.choice(["ant", "bee", "cat"], 400, p=[0.6, 0.3, 0.1])
    labels, scores = rng.integers(0, 2, 400), np.float32(rng.integers(0, 30, 400) / 30)
    groups = auc_by_group(labels, scores, names)
    assert [group.name for group in groups] == ["ant", "bee", "cat"]  # the largest first
    assert sum(group.records for group in groups) == 400
    for group in groups:
        mine = names == group.name
        assert group.records == mine.sum()
        assert group.positives == labels[mine].sum()
        assert group.auc == pytest.approx(metrics.auc(labels[mine], scores[mine]))
        assert group.predicted == pytest.approx(scores[mine].mean())


def test_a_group_without_positives_has_none():
    [both, none] = auc_by_group([0, 1, 1, 0, 0], [0.1, 0.2, 0.3, 0.4, 0.5], [7, 7, 7, 8, 8])
    assert (both.name, both.auc) == ("7", 1.0)
    assert (none.name, none.records, none.positives) == ("8", 2, 0)
    assert math.isnan(none.auc)
    assert auc_by_group([], [], []) == []


def test_each_record_must_have_a_group():
    with pytest.raises(ValueError, match="2 predictions but 1 names of groups"):
        auc_by_group([0, 1], [0.1, 0.2], ["a"])
