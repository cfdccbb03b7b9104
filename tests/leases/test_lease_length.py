import pytest

from tfps.leases.lease import LeaseLength


def test_leases_get_as_long_as_asked_for_once_a_step_is_measured():
    length = LeaseLength(target_seconds=10.0)
    first = length.steps
    assert first >= 1
    length.measured(first, first * 0.01)
    assert length.steps == 1000


def test_slower_steps_make_shorter_leases_and_a_single_one_counts_in_part():
    length = LeaseLength(target_seconds=10.0)
    length.measured(100, 1.0)
    length.measured(100, 3.0)
    assert length.steps == 500
    for _ in range(20):
        length.measured(100, 3.0)
    assert length.steps == pytest.approx(333, abs=1)


def test_a_step_longer_than_a_lease_still_makes_one():
    length = LeaseLength(target_seconds=1.0)
    length.measured(1, 60.0)
    assert length.steps == length.within(left=100, workers=9) == 1


def test_a_closure_without_steps_says_nothing():
    length = LeaseLength()
    before = length.steps
    length.measured(0, 0.2)
    assert length.steps == before


def test_towards_the_end_of_an_epoch_leases_get_shorter_but_not_too_short():
    length = LeaseLength(target_seconds=10.0, least_seconds=0.5)
    assert length.within(left=3, workers=2) == 1
    length.measured(100, 1.0)
    assert length.within(left=100_000, workers=2) == 1000
    assert length.within(left=2000, workers=2) == 500
    assert length.within(left=100, workers=2) == 50
    assert length.within(left=1, workers=2) == 50


def test_a_single_worker_holds_up_nobody():
    length = LeaseLength(target_seconds=10.0)
    length.measured(100, 1.0)
    assert length.within(left=30, workers=1) == 1000


def test_workers_that_take_what_they_are_given_end_together():
    """Ten workers of equal speed, each taking the next lease when it is done with the last."""
    length, free, trained, left = LeaseLength(), [0.0] * 10, [0] * 10, 10_000
    length.measured(100, 2.0)
    while left:
        steps = min(left, length.within(left, 10))
        worker = free.index(min(free))
        free[worker] += steps * 0.02
        trained[worker] += steps
        left -= steps
    assert all(950 <= steps <= 1050 for steps in trained)
    assert max(free) - min(free) <= 1.0


def rounds_of(chunks, members, length):
    """Rounds that an epoch of chunks takes, of which no lease has shares of two.

    Every member makes a step in each round, and takes the next lease when it is done with the last.
    """
    todo, doing, rounds = list(chunks), [0] * members, 0
    while todo or any(doing):
        for member in range(members):
            if todo and not doing[member]:
                doing[member] = min(todo[0], length.in_rounds(sum(todo) + sum(doing), members))
                todo[0] -= doing[member]
                todo = todo[not todo[0] :]
        doing = [max(0, steps - 1) for steps in doing]
        rounds += 1
    return rounds


@pytest.mark.parametrize(
    ("chunks", "members"), [([128] * 8, 4), ([200] * 5, 4), ([128, 3, 90, 257, 1, 61], 4), ([7], 8)]
)
@pytest.mark.parametrize("step_seconds", [0.001, 0.1])
def test_members_of_rounds_end_with_the_same_one(chunks, members, step_seconds):
    length = LeaseLength()
    length.measured(100, 100 * step_seconds)
    assert rounds_of(chunks, members, length) == -(-sum(chunks) // members)


def test_before_a_pause_leases_get_shorter_but_not_too_short():
    length = LeaseLength(target_seconds=5.0, least_seconds=1.0)
    length.measured(100, 1.0)
    for workers in (1, 3):
        within = [length.within(100_000, workers, seconds) for seconds in (100, 12, 3, 0.1, -1)]
        assert within == [500, 300, 75, 50, 50]
    assert LeaseLength().within(100, 1, 0.1) == LeaseLength().steps  # nothing is measured yet


@pytest.mark.parametrize("due", [7.0, 10.0, 17.3, 60.0])
@pytest.mark.parametrize("first", [0.0, 1.1, 2.2])
def test_a_pause_waits_for_a_second_though_every_worker_has_a_lease_waiting(due, first):
    """Of two leases per worker one runs; as one ends, the next is given out behind the other."""
    length, step = LeaseLength(), 0.01
    length.measured(100, 100 * step)

    def given_out(now):
        return step * length.within(10**9, 4, due - now)

    now, waiting = given_out(0.0) + first, given_out(0.0)
    while now < due:
        now, waiting = now + waiting, given_out(now)
    assert now + waiting < due + 1.0
