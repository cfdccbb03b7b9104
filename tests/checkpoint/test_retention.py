import pytest

from tfps.best_metric import BestMetric
from tfps.checkpoint.retention import Retention
from tfps.errors import UserError
from tfps.experiment import Train

HOUR = 3600.0


def saved(*hours):
    """Checkpoints named by their number, saved at some hours."""
    return {str(number): HOUR * hour for number, hour in enumerate(hours)}


def run(retention, hours, metric=None):
    """What is left when the rule is applied after every save, as a run does."""
    left, values = {}, {}
    for name, time in saved(*hours).items():
        left[name] = time
        of_left = {key: {"auc": value} for key, value in values.items() if key in left}
        stay = retention.stay(left, of_left)
        left = {key: time for key, time in left.items() if key in stay}
        if metric and name in metric:  # an evaluation comes after the save
            values[name] = metric[name]
    return set(left)


def test_the_last_stay():
    assert Retention(2).stay(saved(0, 1, 2, 3), {}) == {"2", "3"}
    assert Retention(5).stay(saved(0, 1), {}) == {"0", "1"}
    assert Retention(1).stay({}, {}) == set()


def test_one_stays_for_every_so_many_hours():
    hours = (0, 0.5, 1, 1.5, 2.1, 4, 4.5, 5, 6.2)
    # At 0; 2 hours later there is 2.1; 4.1 comes with 4.5; 6.5 is not reached.
    assert Retention(1, hours=2).stay(saved(*hours), {}) == {"0", "4", "6", "8"}


def test_what_stays_for_good_stays_whenever_the_rule_is_applied():
    hours = [step / 7 for step in range(500)]
    retention = Retention(3, hours=1.5)
    at_once = retention.stay(saved(*hours), {})
    assert run(retention, hours) == at_once
    assert len(at_once) == pytest.approx(hours[-1] / 1.5, abs=4)


def test_a_clock_that_was_set_back_deletes_nothing_early():
    assert Retention(1, hours=1).stay(saved(5, 1, 2, 7), {}) == {"0", "3"}


@pytest.mark.parametrize(
    ("best", "name"), [(BestMetric("auc", True), "1"), (BestMetric("auc", False), "3")]
)
def test_the_best_stays_until_there_is_a_better_one(best, name):
    retention = Retention(2, best=best)
    metric = {"0": 0.5, "1": 0.9, "3": 0.4, "4": 0.7}  # 2 and those after 4 were not evaluated
    assert run(retention, range(9), metric) == {name, "7", "8"}


def test_the_rules_add_up():
    retention = Retention(1, 2.0, BestMetric("auc", True))
    assert retention.stay(saved(0, 1, 2, 3, 4, 5), {"1": {"auc": 1.0}, "3": {"auc": 0.5}}) == {
        "0",
        "1",
        "2",
        "4",
        "5",
    }


def test_without_a_number_none_is_the_best():
    retention = Retention(1, best=BestMetric("auc", True))
    metrics = {"0": {"auc": float("nan")}, "1": {"loss": 0.1}}
    assert retention.stay(saved(0, 1, 2), metrics) == {"2"}


def test_hours_before_now_are_refused():
    with pytest.raises(UserError, match="keep_checkpoint_hours=-1"):
        Train(keep_checkpoint_hours=-1)
