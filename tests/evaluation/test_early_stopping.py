import math

import pytest

from tfps.evaluation.history import BestMetric, EarlyStopping, Evaluation


def evaluations(*losses):
    return [
        Evaluation(f"{epoch}", 1000 * epoch, epoch, 10, {"loss": loss}, 0.1, {})
        for epoch, loss in enumerate(losses, start=1)
    ]


def reason(patience, *losses, is_higher_better=False):
    rule = EarlyStopping(BestMetric("loss", is_higher_better), patience)
    return rule.reason(evaluations(*losses))


@pytest.mark.parametrize(
    ("patience", "losses"),
    [
        (0, [1, 2, 3, 4, 5]),  # off
        (2, []),
        (2, [1]),
        (2, [1, 2]),
        (2, [1, 2, 0.9]),
        (2, [3, 2, 1, 0]),
        (2, [1, math.nan]),
        (3, [1, 1, 1]),
    ],
)
def test_the_training_goes_on(patience, losses):
    assert reason(patience, *losses) is None


@pytest.mark.parametrize(
    ("patience", "losses", "best"),
    [
        (1, [1, 1], "1.0000 (epoch 1, 1,000 steps) in 1 evaluations"),
        (2, [3, 1, 2, 1], "1.0000 (epoch 2, 2,000 steps) in 2 evaluations"),
        (2, [1, 2, 3, 4], "1.0000 (epoch 1, 1,000 steps) in 3 evaluations"),
        (2, [math.nan, 1, math.nan, math.inf], "1.0000 (epoch 2, 2,000 steps) in 2 evaluations"),
    ],
)
def test_the_training_stops(patience, losses, best):
    assert reason(patience, *losses) == f"loss has not become better than {best}"


def test_where_higher_is_better():
    assert reason(2, 3, 2, 1, is_higher_better=True).startswith("loss has not become better than 3")
    assert reason(2, 1, 2, 3, is_higher_better=True) is None


def test_evaluations_without_a_number_end_it_too():
    assert reason(2, math.nan) is None
    assert reason(2, math.nan, math.nan) == "none of 2 evaluations has a number for loss"
