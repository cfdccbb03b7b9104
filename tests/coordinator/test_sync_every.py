import pytest

from tfps.worker.loop import MOST_STEPS, ExchangeTimes, SyncEvery


def measure(sync_every, exchange, step, leases=10):
    """Tells of leases of two workers, of five exchanges each; how many until it was enough."""
    for lease in range(leases):
        times = ExchangeTimes(5, 5 * exchange, 5 * step * sync_every.steps)
        if sync_every.measured(lease % 2, times):
            return lease + 1
    return None


@pytest.mark.parametrize(
    ("exchange", "step", "steps"),
    [(0.010, 0.010, 9), (0.0001, 0.010, 1), (1.0, 0.001, MOST_STEPS), (0.01, 0.0, MOST_STEPS)],
)
def test_as_few_steps_are_chosen_as_keep_exchanges_below_a_tenth(exchange, step, steps):
    chosen = []
    sync_every = SyncEvery(0, chosen.append)
    assert not sync_every.is_chosen
    assert measure(sync_every, exchange, step) == 7  # five leases, and the first one of each worker
    assert sync_every.is_chosen
    assert chosen == [sync_every.steps] == [steps]
    assert sync_every.most_unrecorded == max(8, steps)
    assert measure(sync_every, exchange, step) is None


def test_what_is_known_is_not_measured():
    sync_every = SyncEvery(3)
    assert sync_every.is_chosen
    assert measure(sync_every, 1.0, 0.001) is None
    assert sync_every.steps == sync_every.most_unrecorded == 3


def test_leases_that_are_too_short_for_an_exchange_choose_nothing():
    sync_every = SyncEvery(0)
    assert not any(sync_every.measured(0, ExchangeTimes(0, 0.0, 0.0)) for _ in range(100))
    assert not sync_every.is_chosen
