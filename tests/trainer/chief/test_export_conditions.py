"""What a model must have measured to become a version."""

import math

import pytest

from tfps.errors import UserError
from trainer.chief.export_conditions import Condition, check, unmet

NEWEST = {"auc": 0.9, "loss": 0.5}


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("auc>=0.8", 0.8, 0.7999),
        ("loss<0.5", 0.4999, 0.5),
        (" clicked_auc > 7e-1 ", 0.71, 0.7),
        ("rmse<=2", 2.0, math.nan),
        ("rmse>-1", -0.5, -math.inf),
        ("auc>=newest", 0.9, 0.8999),
        ("auc >= newest-0.005", 0.895, 0.89),
        ("loss<newest+1e-2", 0.5, 0.52),
    ],
)
def test_a_condition_holds_for_what_is_good_enough(text, good, bad):
    condition = Condition.parse(text)
    assert condition.holds({condition.metric: good}, NEWEST)
    assert not condition.holds({condition.metric: bad}, NEWEST)
    assert Condition.parse(str(condition)) == condition


@pytest.mark.parametrize(
    "text", ["auc>=", "auc", "auc=0.8", "auc>=high", "auc>=nan", "0.8<=auc<1", "auc>=newest5"]
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UserError, match=r"train.export_if=.*: write METRIC>=NUMBER"):
        Condition.parse(text)


def test_nothing_is_compared_with_what_is_not_known():
    condition = Condition.parse("auc>=newest")
    assert condition.holds({"auc": 0.1}, {})
    assert condition.holds({"auc": 0.1}, {"auc": math.nan})
    assert not condition.holds({}, NEWEST)


def test_the_first_that_does_not_hold_is_named():
    assert unmet(("auc>=0.8", "loss<1"), NEWEST, {}) == ""
    assert unmet(("auc>=0.8", "mse<1"), NEWEST, {}) == "mse is nan, but train.export_if=mse<1"


def test_a_condition_on_what_is_not_measured_is_refused():
    check(("auc>0.5",), ["loss", "auc"])
    with pytest.raises(UserError, match="export_if=mse<1: there is no metric 'mse'; use one of lo"):
        check(("mse<1",), ["loss", "auc"])
