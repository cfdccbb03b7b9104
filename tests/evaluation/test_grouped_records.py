"""Records of groups beyond what memory may hold: the same metrics, in the memory of a part."""

import errno
import math
import tracemalloc

import numpy as np
import pytest

import tfps
from tests.evaluation.test_metrics import LABELS, PREDICTIONS, Ranked
from tfps.errors import UserError
from tfps.evaluation import grouped_records
from tfps.evaluation.accumulators import accumulators_of
from tfps.evaluation.grouped_records import GroupedRecords
from tfps.evaluation.metrics import RunningMetrics

DRAW = np.random.default_rng(0)
RECORDS = 30_000
USERS = DRAW.zipf(1.3, RECORDS) % 3_000
METRICS = {
    "gauc": tfps.GroupAUC(),
    "ndcg": tfps.NDCG(10),
    "hits": tfps.HitRate(3),
    "recall": tfps.RecallAtK(5),
    "mrr": tfps.MeanReciprocalRank(),
}
IDS = {
    "numbers": USERS - 1_000,
    "texts": np.array([b"user-%d" % user for user in USERS], object),
}


@pytest.fixture
def held(monkeypatch):
    """Lets so many records be held in memory."""
    real = grouped_records.GroupedRecords

    def held(records):
        made = lambda: real(records)  # noqa: E731
        monkeypatch.setattr("tfps.evaluation.accumulators.GroupedRecords", made)

    return held


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("limit", [500, 29_000, RECORDS])
def test_the_metrics_are_those_of_all_records_at_once(kind, limit, held):
    held(limit)
    labels, groups = DRAW.integers(0, 2, RECORDS), IDS[kind]
    scores = (DRAW.random(RECORDS) + 0.1 * labels).round(2).astype("f4")  # with ties
    kept = accumulators_of([("", metric) for metric in METRICS.values()])
    for first in range(0, RECORDS, 7_000):
        some = slice(first, first + 7_000)
        for each in kept:
            each.add(labels[some], scores[some], groups[some])
    for each, metric in zip(kept, METRICS.values(), strict=True):
        expected, found = metric.mean(labels, scores, groups), each.result()
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        told = f"leaves out {expected.left_out:,} of {expected.groups:,} groups, "
        assert found.note.startswith(told)


def test_groups_stay_whole_and_no_record_is_lost():
    records = GroupedRecords(1_000)
    numbers = np.arange(RECORDS)
    for first in range(0, RECORDS, 700):
        some = slice(first, first + 700)
        records.add(numbers[some], numbers[some].astype("f4"), IDS["texts"][some])
    parts = list(records.parts())
    assert len(parts) > 100
    seen = np.concatenate([part.labels for part in parts]).astype(int)
    assert sorted(seen) == list(numbers)
    users = [set(USERS[part.labels.astype(int)]) for part in parts]
    assert sum(map(len, users)) == len(set(USERS)) == sum(part.groups.max() + 1 for part in parts)


def test_memory_is_that_of_what_is_held_and_of_one_part():
    peaks = []
    for records in (100_000, 800_000):
        draw, kept = np.random.default_rng(0), GroupedRecords(50_000)
        tracemalloc.start()
        for _ in range(records // 10_000):
            groups = draw.integers(0, 1_000_000, 10_000)
            kept.add(groups % 2, draw.random(10_000, np.float32), groups)
        assert sum(len(part.labels) for part in kept.parts()) == records
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 20_000_000


def test_a_prediction_that_is_no_number_makes_no_mean(held):
    held(2)
    running = RunningMetrics(Ranked(measures={"gauc": tfps.GroupAUC()}))
    scores = PREDICTIONS["predictions"].copy()
    for value in (0.5, math.nan, 0.5):
        scores[1] = value
        running.add({**LABELS, "token": np.arange(4)}, {"predictions": scores.copy()})
    assert math.isnan(running.result()["gauc"].value)


def test_each_metric_refuses_labels_by_its_own_name():
    measures = {"ndcg": tfps.NDCG(3), "gauc": tfps.GroupAUC()}
    running = RunningMetrics(Ranked(measures=measures))
    labels = {"label": np.array([0, 1, 3, 0]), "token": np.zeros(4, int)}
    with pytest.raises(UserError, match="metric 'gauc' of Ranked fails: a label is neither 0 nor"):
        running.add(labels, PREDICTIONS)


def test_a_disk_that_is_full_is_named(monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(grouped_records.tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match=r"No space left on device; name .* TMPDIR"):
        GroupedRecords(3).add(np.zeros(9), np.zeros(9, "f4"), np.zeros(9, int))
