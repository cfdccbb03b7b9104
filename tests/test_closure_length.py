import pytest

from tfps.closure_length import ClosureLength


def test_closures_get_as_long_as_asked_for_once_a_step_is_measured():
    length = ClosureLength(target_seconds=10.0)
    first = length.steps
    assert first >= 1
    length.measured(first, first * 0.01)
    assert length.steps == 1000


def test_slower_steps_make_shorter_closures_and_a_single_one_counts_in_part():
    length = ClosureLength(target_seconds=10.0)
    length.measured(100, 1.0)
    length.measured(100, 3.0)
    assert length.steps == 500
    for _ in range(20):
        length.measured(100, 3.0)
    assert length.steps == pytest.approx(333, abs=1)


def test_a_step_longer_than_a_closure_still_makes_one():
    length = ClosureLength(target_seconds=1.0)
    length.measured(1, 60.0)
    assert length.steps == 1


def test_a_closure_without_steps_says_nothing():
    length = ClosureLength()
    before = length.steps
    length.measured(0, 0.2)
    assert length.steps == before
