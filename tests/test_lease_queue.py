import pytest

from tfps.lease import leases_of_epoch
from tfps.lease_queue import LeaseQueue, QueueState
from tfps.shard import Shard

SHARDS = [Shard(f"s{n}", records, 100, "") for n, records in enumerate((5, 0, 7, 3, 11))]
PATHS = [f"dir/{shard.file}" for shard in SHARDS]


def queue(epochs=2, state=None, seed=0):
    return LeaseQueue(
        lambda epoch: leases_of_epoch(SHARDS, PATHS, epoch, seed), epochs, state or QueueState()
    )


def drain(leases):
    taken = []
    while lease := leases.take():
        taken.append(lease)
    return taken


def test_an_epoch_has_a_lease_for_every_shard_with_records():
    leases = leases_of_epoch(SHARDS, PATHS, 0, seed=0)
    assert sorted(lease.shard for lease in leases) == [0, 2, 3, 4]
    assert sum(lease.records for lease in leases) == 26
    assert {lease.path for lease in leases} == {PATHS[n] for n in (0, 2, 3, 4)}


def test_the_order_depends_on_seed_and_epoch_alone():
    orders = {
        (seed, epoch): leases_of_epoch(SHARDS * 4, PATHS * 4, epoch, seed)
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert orders[0, 0] == leases_of_epoch(SHARDS * 4, PATHS * 4, 0, 0)
    shards = [[lease.shard for lease in order] for order in orders.values()]
    assert all(shards[0] != other for other in shards[1:])
    seeds = {lease.seed for order in orders.values() for lease in order}
    assert len(seeds) == 4 * 16


def test_every_record_of_every_epoch_is_given_out_once():
    leases = queue()
    while not leases.finished:
        for lease in drain(leases):
            assert lease.epoch == leases.epoch
            leases.finish(lease)
        leases.next_epoch()
    assert leases.trained == 2 * 26
    assert leases.take() is None


def test_a_state_is_only_to_be_had_between_leases_and_goes_on_where_it_was():
    leases = queue()
    first, second = leases.take(), leases.take()
    leases.finish(first, repeated=2)
    with pytest.raises(ValueError, match="1 leases"):
        leases.state()
    leases.finish(second)
    state = QueueState.from_json(leases.state().to_json())
    assert state == leases.state()
    again = queue(state=state)
    assert again.repeated == 2
    assert [lease.shard for lease in drain(again)] == [lease.shard for lease in drain(leases)]


def test_an_epoch_cannot_be_left_before_its_end():
    leases = queue()
    leases.take()
    with pytest.raises(ValueError, match="not done"):
        leases.next_epoch()


def test_a_finished_queue_can_go_on_with_more_epochs():
    assert queue(epochs=2, state=QueueState(epoch=2, trained=52)).finished
    more = queue(epochs=3, state=QueueState(epoch=2, trained=52))
    assert len(drain(more)) == 4
