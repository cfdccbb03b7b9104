import pytest

from tfps.checkpoint.directory import Retention
from tfps.errors import UserError
from tfps.evaluation.history import BestMetric
from tfps.experiment.experiment import Train

HOUR = 3600.0


def saved(*hours):
    """Checkpoints named by their number, saved at some hours."""
    return {str(number): HOUR * hour for number, hour in enumerate(hours)}


def stay(retention, checkpoints, metrics, bases=None):
    """What stays of checkpoints that are full ones but those that need another."""
    return retention.stay(
        checkpoints, metrics, {name: name for name in checkpoints} | (bases or {})
    )


def run(retention, hours, metric=None):
    """What is left when the rule is applied after every save, as a run does."""
    left, values = {}, {}
    for name, time in saved(*hours).items():
        left[name] = time
        of_left = {key: {"auc": value} for key, value in values.items() if key in left}
        kept = stay(retention, left, of_left)
        left = {key: time for key, time in left.items() if key in kept}
        if metric and name in metric:  # an evaluation comes after the save
            values[name] = metric[name]
    return set(left)


def test_the_last_stay():
    assert stay(Retention(2), saved(0, 1, 2, 3), {}) == {"2", "3"}
    assert stay(Retention(5), saved(0, 1), {}) == {"0", "1"}
    assert stay(Retention(1), {}, {}) == set()


def test_one_stays_for_every_so_many_hours():
    hours = (0, 0.5, 1, 1.5, 2.1, 4, 4.5, 5, 6.2)
    # At 0; 2 hours later there is 2.1; 4.1 comes with 4.5; 6.5 is not reached.
    assert stay(Retention(1, hours=2), saved(*hours), {}) == {"0", "4", "6", "8"}


def test_what_stays_for_good_stays_whenever_the_rule_is_applied():
    hours = [step / 7 for step in range(500)]
    retention = Retention(3, hours=1.5)
    at_once = stay(retention, saved(*hours), {})
    assert run(retention, hours) == at_once
    assert len(at_once) == pytest.approx(hours[-1] / 1.5, abs=4)


def test_a_clock_that_was_set_back_deletes_nothing_early():
    assert stay(Retention(1, hours=1), saved(5, 1, 2, 7), {}) == {"0", "3"}


@pytest.mark.parametrize(
    ("best", "name"), [(BestMetric("auc", True), "1"), (BestMetric("auc", False), "3")]
)
def test_the_best_stays_until_there_is_a_better_one(best, name):
    retention = Retention(2, best=best)
    metric = {"0": 0.5, "1": 0.9, "3": 0.4, "4": 0.7}  # 2 and those after 4 were not evaluated
    assert run(retention, range(9), metric) == {name, "7", "8"}


def test_the_rules_add_up():
    retention = Retention(1, 2.0, BestMetric("auc", True))
    assert stay(retention, saved(0, 1, 2, 3, 4, 5), {"1": {"auc": 1.0}, "3": {"auc": 0.5}}) == {
        "0",
        "1",
        "2",
        "4",
        "5",
    }


def test_without_a_number_none_is_the_best():
    retention = Retention(1, best=BestMetric("auc", True))
    metrics = {"0": {"auc": float("nan")}, "1": {"loss": 0.1}}
    assert stay(retention, saved(0, 1, 2), metrics) == {"2"}


def test_hours_before_now_are_refused():
    with pytest.raises(UserError, match="keep_checkpoint_hours=-1"):
        Train(keep_checkpoint_hours=-1)


def test_what_increments_need_stays_with_them():
    bases = {"1": "0", "2": "0", "4": "3", "5": "3", "6": "3"}
    # Of the last two, 3 is the base; 2 is the newest of another one.
    assert stay(Retention(2), saved(*range(7)), {}, bases) == {"0", "2", "3", "5", "6"}
    assert stay(Retention(1), saved(*range(7)), {}, bases) == {"3", "6"}
    best = {"1": {"auc": 1.0}, "4": {"auc": 0.5}}
    retention = Retention(1, best=BestMetric("auc", True))
    assert stay(retention, saved(*range(7)), best, bases) == {"0", "1", "3", "6"}


def test_full_checkpoints_are_deleted_as_if_there_were_no_others():
    assert stay(Retention(3), saved(*range(5)), {}) == {"2", "3", "4"}
