import os

from tfps.recoveries import Recoveries
from tfps.task_watch import Failure
from trainer.handover import Handover


def test_the_next_program_finds_what_was_left(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    recoveries = Recoveries()
    recoveries.restored(100)
    recoveries.trained(300)
    recoveries.begin("ps 0 was lost")
    failures = [Failure("ps 0", "its port refused connections", 5.0, 2.5), Failure("w", "?", 6.0)]
    left = Handover(recoveries, failures, 17.25)
    left.leave()
    found = Handover.found()
    assert found.recoveries.to_json() == recoveries.to_json()
    assert (list(found.failures), found.began) == (failures, 17.25)


def test_a_run_that_begins_has_lost_nothing():
    found = Handover.found()
    assert (found.recoveries.report(), list(found.failures)) == ([], [])
