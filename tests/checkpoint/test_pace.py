"""Rests of a save: as long as nobody waits for it, and not for ever."""

import threading
import time

import pytest

from tfps.checkpoint.pace import Pace

LONG = 3600.0
PATIENCE = 60.0


def resting(pace):
    """A thread that rests after a long turn."""
    thread = threading.Thread(target=pace.rest, args=[LONG], daemon=True)
    thread.start()
    return thread


def test_whoever_waits_for_a_save_ends_its_rest_and_all_that_would_follow():
    pace = Pace(LONG)
    pace.begin()
    thread = resting(pace)
    assert thread.is_alive()
    pace.hurry()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    pace.rest(LONG)  # returns at once
    pace.begin()
    again = resting(pace)
    again.join(0.05)
    assert again.is_alive()
    pace.hurry()


@pytest.mark.parametrize("spread_seconds", [0.0, 0.05])
def test_a_save_rests_no_more_once_its_time_is_over(spread_seconds):
    pace = Pace(spread_seconds)
    pace.begin()
    thread = resting(pace)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_rest_is_as_long_as_two_turns():
    pace = Pace(LONG)
    pace.begin()
    began = time.monotonic()
    pace.rest(0.05)
    assert 0.1 <= time.monotonic() - began < LONG
