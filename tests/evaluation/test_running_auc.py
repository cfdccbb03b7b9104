"""The AUC of records that come in parts: exact up to a number of them, then within its bound."""

import math

import numpy as np
import pytest

from tfps.evaluation.accumulators import RunningAuc
from tfps.experiment.metrics import auc

DRAW = np.random.default_rng(0)
LABELS = DRAW.integers(0, 2, 50_000)


def running(labels, scores, exact_records, part=7_000):
    found = RunningAuc(exact_records)
    for first in range(0, len(labels), part):
        found.add(labels[first : first + part], scores[first : first + part])
    return found.result()


def scores_of(name):
    """Scores that say something of the labels, of several kinds."""
    noisy = LABELS + DRAW.normal(0, 2, len(LABELS))
    return {
        "chances": 1 / (1 + np.exp(-noisy)),
        "logits": noisy,
        "sorted": np.sort(noisy),
        "all equal": np.full(len(LABELS), 0.3),
        "two values": np.where(noisy > 0.5, 0.7, 0.7000001),
        "denormals": np.maximum(noisy, 0) * 1e-45,
        "huge": np.clip(noisy * 1e38, -3e38, 3e38),
        "infinite": np.where(noisy > 2, np.inf, np.where(noisy < -2, -np.inf, noisy)),
        "first ones equal": np.where(np.arange(len(LABELS)) < 15_000, 0.3, noisy),
        "later ones elsewhere": np.arange(len(LABELS)) // 10_000 + noisy,
    }[name].astype("f4")


KINDS = (
    "chances",
    "logits",
    "sorted",
    "all equal",
    "two values",
    "denormals",
    "huge",
    "infinite",
    "first ones equal",
    "later ones elsewhere",
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_area_is_exact_or_within_the_bound_that_it_states(kind):
    scores = scores_of(kind)
    exact = auc(LABELS, scores)
    assert running(LABELS, scores, len(LABELS)) == (exact, 0.0)
    found = running(LABELS, scores, 10_000)
    assert abs(found.value - exact) <= found.bound + 1e-12
    print(f"{kind}: off by {abs(found.value - exact):.1e}, bound {found.bound:.1e}")
    if kind in ("all equal", "two values", "denormals"):
        assert found.bound == 0.0
    elif kind in ("chances", "logits", "infinite"):
        assert found.bound < 1e-4
    else:  # what was seen first says nothing of what comes
        assert found.bound < 0.01


def test_what_has_no_area_is_not_a_number():
    for exact_records in (1, 100):
        assert math.isnan(running(np.ones(10), np.zeros(10), exact_records, 3).value)
        scores = np.arange(10.0)
        scores[7] = np.nan
        assert math.isnan(running(np.arange(10) % 2, scores, exact_records, 3).value)
    assert math.isnan(RunningAuc().result().value)


def test_memory_stays_what_it_is_once_scores_are_counted():
    found = RunningAuc(1000)
    found.add(LABELS, scores_of("logits"))
    counted = found._counts.nbytes
    for kind in KINDS:
        found.add(LABELS, scores_of(kind))
    assert not found._scores
    assert found._counts.nbytes == counted < 32 * (len(LABELS) + (1 << 16))
