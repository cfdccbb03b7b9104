"""Rests of a save: as long as nobody waits for it, and not for ever."""

import threading
import time

import pytest

from tests.checkpoint.keyed import USERS, Keyed, RowTrainer, store_of
from tfps.checkpoint import keyed_snapshot
from tfps.checkpoint.keyed_snapshot import Pace

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


class Told(Pace):
    """Rests never, and keeps how long the turns were."""

    def __init__(self):
        super().__init__(0.0)
        self.turns = []

    def rest(self, worked_seconds):
        self.turns.append(worked_seconds)


@pytest.mark.slow
def test_a_save_of_many_keys_rests_between_the_runs_of_rows_of_each_ps(tmp_path, monkeypatch):
    monkeypatch.setattr(keyed_snapshot, "CHUNK_BYTES", 1)  # so that a run is a row
    trainer, pace = RowTrainer(store_of(Keyed(), parts=2)), Told()
    trainer.train(USERS, range(40))
    snapshot = keyed_snapshot.KeyedSnapshot.of(trainer.store, {})
    assert len(snapshot.write(str(tmp_path / "values"), pace)) == 40
    assert len(pace.turns) == 38
    assert min(pace.turns) > 0
