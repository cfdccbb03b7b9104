import dataclasses
import random

import pytest

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
    assert changes.seconds_left(waiting=1) == 80
    clock.now += 50
    changes.trained(5000)
    assert changes.seconds_left(waiting=1) == 30
    clock.now += 30
    assert changes.seconds_left(waiting=1) == 0


def test_a_hundred_changes_an_hour_take_a_fifth_of_the_time(clock):
    asked, lost, cost = 0.0, 0.0, 20.0
    changes, end = WorkerChanges(), clock.now + 3600
    while clock.now < end:
        asked += 1
        if changes.seconds_left(waiting=1) == 0:
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


def test_the_next_one_waits_until_those_who_wait_have_missed_what_it_costs(clock):
    changes = made(clock, 20.0)
    assert changes.seconds_left(waiting=1 / 2) == 80  # one of two has missed as much by then
    changes = made(clock, 20.0)
    assert changes.seconds_left(waiting=1 / 50) == 1000
    clock.now += 400
    assert changes.seconds_left(waiting=1 / 50) == 600  # 8 s of all are missed
    assert changes.seconds_left(waiting=2 / 50) == 300
    clock.now += 300
    assert changes.seconds_left(waiting=2 / 50) == 0


def test_losses_alone_may_wait_for_half_an_hour(clock):
    changes = made(clock, 20.0)
    assert changes.seconds_left() == 1800


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cost", [20.0, 60.0])
def test_two_hundred_spot_machines_lose_less_than_a_twentieth_of_their_time(clock, seed, cost):
    """5 % of the machines go in an hour; each is replaced, most within ten minutes."""
    draw, workers, hours = random.Random(seed), 200, 24
    changes, end = made(clock, cost), clock.now + 3600 * hours
    training, away, ready = workers, [], 0  # away: when each comes back
    lost = 0.0  # seconds of workers, that have a machine and do not train
    while clock.now < end:
        if draw.random() < training * 0.05 * 2 / 3600:
            training -= 1
            away.append(clock.now + draw.expovariate(1 / 300))
        ready += sum(at <= clock.now for at in away)
        away = [at for at in away if at > clock.now]
        if ready and changes.seconds_left(waiting=ready / workers) == 0:
            lost += cost * (training + ready)
            training, ready = training + ready, 0
            changes = made(clock, cost)
        clock.now += 2
        lost += 2 * ready
    assert lost < 0.05 * workers * 3600 * hours
