import math

import pytest

from tfps.errors import UserError
from tfps.evaluation.history import BestMetric

NAMES = ("loss", "auc", "clicked_auc", "accuracy", "rmse", "normalized_entropy", "of_log_loss")


@pytest.mark.parametrize(
    ("setting", "name", "is_higher_better"),
    [
        ("loss", "loss", False),
        ("auc", "auc", True),
        ("accuracy", "accuracy", True),
        ("clicked_auc", "clicked_auc", True),
        ("normalized_entropy", "normalized_entropy", False),
        ("of_log_loss", "of_log_loss", False),
        ("min:rmse", "rmse", False),
        ("max:rmse", "rmse", True),
        ("max:loss", "loss", True),  # who says so knows
    ],
)
def test_the_direction_is_known_or_said(setting, name, is_higher_better):
    assert BestMetric.of(setting, NAMES) == BestMetric(name, is_higher_better)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rmse", "does not say what is better; write max:rmse if a higher value is"),
        ("up:rmse", "does not say what is better"),
        ("ndcg", "no metric 'ndcg'; use one of loss, auc"),
        ("max:ndcg", "no metric 'ndcg'"),
        ("", "no metric ''"),
    ],
)
def test_what_cannot_be_compared_is_refused(setting, message):
    with pytest.raises(UserError, match=message) as error:
        BestMetric.of(setting, NAMES)
    assert str(error.value).startswith(f"train.best_metric={setting}")


def test_the_first_of_the_best_wins():
    lower, higher = BestMetric("x", False), BestMetric("x", True)
    values = [{"x": 2.0}, {"x": 1.0}, {"x": 3.0}, {"x": 1.0}, {"x": 3.0}]
    assert lower.best(values) == 1
    assert higher.best(values) == 2


@pytest.mark.parametrize("nothing", [{}, {"x": math.nan}, {"x": math.inf}, {"x": -math.inf}])
@pytest.mark.parametrize("is_higher_better", [False, True])
def test_what_is_no_number_is_never_the_best(nothing, is_higher_better):
    metric = BestMetric("x", is_higher_better)
    assert metric.best([nothing, {"x": 5.0}, nothing]) == 1
    assert metric.best([nothing, nothing]) is None
    assert metric.best([]) is None
