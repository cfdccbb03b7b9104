import dataclasses

from trainer.chief.state import WorkerChanges


def made(clock, seconds):
    """A change that took so long, in the program that continued."""
    changes = WorkerChanges()
    changes.begin()
    again = dataclasses.replace(changes)
    again.trained(500)
    clock.now += seconds
    again.trained(516)
    return again


def test_the_first_change_may_begin_at_once():
    changes = WorkerChanges()
    changes.trained(0)
    changes.trained(16)
    assert changes.seconds_left() == 0


def test_the_next_one_waits_four_times_as_long_as_the_last_took(clock):
    changes = made(clock, 20.0)
    assert changes.seconds_left() == 80
    clock.now += 50
    changes.trained(5000)
    assert changes.seconds_left() == 30
    clock.now += 30
    assert changes.seconds_left() == 0


def test_a_hundred_changes_an_hour_take_a_fifth_of_the_time(clock):
    asked, lost, cost = 0.0, 0.0, 20.0
    changes, end = WorkerChanges(), clock.now + 3600
    while clock.now < end:
        asked += 1
        if changes.seconds_left() == 0:
            changes = made(clock, cost)
            lost += cost
        clock.now += 1  # somebody comes or goes each second
    assert asked > 100
    assert lost <= 3600 / 5 + cost


def test_no_change_waits_for_longer_than_half_an_hour(clock):
    assert made(clock, 1000.0).seconds_left() == 1800
    changes = WorkerChanges()
    changes.begin()  # and nothing is trained
    clock.now += 1700
    assert changes.seconds_left() == 100
