import dataclasses
import gc
import random
import tracemalloc

import msgspec
import numpy as np
import pytest

from tfps.data.dataset_names import names_of
from tfps.data.followed_data import FollowedData, Position
from tfps.data.manifest import Manifest
from tfps.data.shards import RecordIndex, Shard
from tfps.data.training_data import TrainingData
from tfps.errors import UserError
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.lease import CHUNK_BLOCKS, EpochOrder
from tfps.leases.queue import LeaseQueue, QueueState

STRIDE = 100
ORDER = EpochOrder(batch_size=10, shuffle_buffer=35, seed=0)  # blocks of 4 batches
BLOCK = 40


def data(*sizes, compression=""):
    return TrainingData.of(of_sizes(*sizes, compression=compression))


def of_sizes(*sizes, compression="", directory="dir"):
    shards = [Shard(f"s{n}", size, 100, "", compression) for n, size in enumerate(sizes)]
    offsets = [
        np.arange(-(-shard.records // STRIDE) if not compression else 0) * 1000 for shard in shards
    ]
    index = RecordIndex(STRIDE, tuple(offsets))
    return Manifest(
        name="d", features=[], labels=[], shards=tuple(shards), index=index, directory=directory
    )


DATA = data(6705, 0, 7, 300, 11)
RECORDS = 6705 + 7 + 300 + 11


def queue(epochs=2, state=None, order=ORDER, of=DATA):
    return LeaseQueue(of, order, epochs, state or QueueState(), BadRecords(of, (), 0))


def drain(leases, batches=1000):
    taken = []
    while lease := leases.take(batches() if callable(batches) else batches):
        taken.append(lease)
    return taken


def sequence(leases):
    """The epoch's batches in their order: shard, first record, number of records."""
    size = ORDER.batch_size
    return [
        (lease.source.path, first, min(size, lease.first + lease.records - first))
        for lease in leases
        for first in range(lease.first, lease.first + lease.records, size)
    ]


@pytest.mark.parametrize("shuffle_buffer", [0, 35])
def test_the_batches_of_an_epoch_come_in_one_order_however_leases_are_cut(shuffle_buffer):
    order = EpochOrder(10, shuffle_buffer, seed=0)
    whole = sequence(drain(queue(order=order)))
    draw = random.Random(1)
    for batches in (1, 3, 4, 5, 7, 9, 50, lambda: draw.randint(1, 30)):
        assert sequence(drain(queue(order=order), batches)) == whole
    assert sum(count for _, _, count in whole) == RECORDS
    assert len(set(whole)) == len(whole)
    # A batch that is not whole is the last of its shard.
    assert {(path, first + count) for path, first, count in whole if count < 10} == {
        ("dir/s0", 6705),
        ("dir/s2", 7),
        ("dir/s4", 11),
    }


def test_a_lease_has_as_many_batches_as_asked_for_and_whole_blocks_from_a_block_on():
    leases = queue(of=data(16 * BLOCK))
    assert [lease.records for lease in drain(leases, 20)] == [160, 160, 160, 160]
    for batches in (9, 13, 30, 63):
        taken = drain(queue(of=data(16 * BLOCK)), batches)
        assert all(lease.records % BLOCK == 0 for lease in taken)
        assert max(lease.records for lease in taken) <= batches * 10 + BLOCK / 2
        assert min(lease.records for lease in taken) >= batches * 10 / 2 - BLOCK / 2
    for batches in (1, 2, 3):
        taken = drain(queue(of=data(16 * BLOCK)), batches)
        assert all(
            lease.first // BLOCK == (lease.first + lease.records - 1) // BLOCK for lease in taken
        )
        assert {lease.records for lease in taken} <= {10, 20, 30}
        assert max(lease.records for lease in taken) <= 10 * batches
    leases = queue(of=data(16 * BLOCK))
    assert leases.take(1).records == 10
    assert leases.take(8).records == 70  # up to where a block ends


def test_a_compressed_shard_is_one_lease():
    leases = queue(of=data(1705, 0, 300, compression="GZIP"))
    taken = drain(leases, 1)
    assert sorted(lease.records for lease in taken) == [300, 1705]
    assert {lease.source.compression for lease in taken} == {"GZIP"}
    assert {lease.source.offsets for lease in taken} == {(0,)}


def test_a_lease_knows_where_the_records_begin_that_it_needs():
    for batches in (1, 3, 4, 9, 100):
        for lease in drain(queue(), batches):
            source = lease.source
            block = lease.first // BLOCK * BLOCK
            assert source.stride == STRIDE
            assert source.first <= block < source.first + STRIDE
            assert source.offsets[0] == source.first // STRIDE * 1000
            last = source.first + (len(source.offsets) - 1) * STRIDE
            assert last <= lease.first + lease.records - 1 < last + STRIDE


def test_every_epoch_and_seed_has_an_order_of_its_own():
    many = list(enumerate(DATA.of_epoch(0).shards * 4))
    orders = [EpochOrder(10, 35, seed).chunks(many, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert orders[0] == ORDER.chunks(many, 0)
    assert all(sorted(orders[0]) == sorted(other) != orders[0] for other in orders[1:])
    assert all(orders[0] != other for other in orders[1:])
    seeds = {EpochOrder(10, 35, s).shard_seed(e, n) for s in (0, 1) for e in (0, 1) for n in (0, 1)}
    assert len(seeds) == 8


def test_a_large_shard_is_spread_over_the_epoch():
    chunks = ORDER.chunks(data(CHUNK_BLOCKS * BLOCK * 8).shards_of(0), 0)
    assert len(chunks) == 8
    assert [chunk.first for chunk in chunks] != sorted(chunk.first for chunk in chunks)


def test_every_record_of_every_epoch_is_given_out_once():
    leases = queue()
    while not leases.finished:
        for lease in drain(leases, 6):
            assert lease.epoch == leases.epoch
            assert leases.skipped == 0
            leases.finish(lease, lease.records)
        assert leases.batches_left == 0
        leases.next_epoch()
    assert leases.trained == 2 * RECORDS
    assert leases.skipped == 0
    assert leases.batches_left == 0
    assert leases.take(1) is None


def test_what_a_lease_left_out_is_skipped():
    leases = queue()
    first, second = leases.take(4), leases.take(4)
    leases.finish(first, first.records - 3)
    assert leases.skipped == 3
    leases.finish(second, second.records)
    assert (leases.trained, leases.skipped) == (first.records + second.records - 3, 3)


def test_a_state_is_only_to_be_had_between_leases_and_goes_on_where_it_was():
    leases = queue()
    first, second = leases.take(30), leases.take(5)
    leases.finish(second, second.records)
    leases.repeat(2)
    with pytest.raises(ValueError, match="1 leases"):
        leases.state()
    leases.finish(first, first.records)
    state = msgspec.convert(dataclasses.asdict(leases.state()), QueueState)
    assert state == leases.state()
    assert state.cursor == state.trained == first.records + second.records
    again = queue(state=state)
    assert (again.repeated, again.batches_left) == (2, leases.batches_left)
    rest = drain(again)
    assert sequence(rest) == sequence(drain(leases, 3))
    for lease in rest:
        again.finish(lease, lease.records)
    assert (again.trained, again.skipped) == (RECORDS, 0)


@pytest.mark.parametrize(
    ("order", "named"),
    [
        (EpochOrder(20, 35, 0), "train.batch_size was 10, is 20;"),
        (EpochOrder(10, 0, 0), "data.shuffle_buffer was 35, is 0;"),
        (EpochOrder(10, 35, 7), "train.seed was 0, is 7;"),
    ],
)
def test_another_order_is_refused_in_the_middle_of_an_epoch_only(order, named):
    leases = queue()
    first = leases.take(4)
    leases.finish(first, first.records)
    with pytest.raises(UserError, match="in the middle of epoch 1") as refused:
        queue(state=leases.state(), order=order)
    assert named in str(refused.value)
    for lease in drain(leases):
        leases.finish(lease, lease.records)
    leases.next_epoch()
    changed = queue(state=leases.state(), order=order)
    assert sum(lease.records for lease in drain(changed)) == RECORDS


def test_an_epoch_cannot_be_left_before_its_end():
    leases = queue()
    leases.take(1)
    with pytest.raises(ValueError, match="not done"):
        leases.next_epoch()


def test_a_finished_queue_can_go_on_with_more_epochs():
    state = QueueState(epoch=2, trained=2 * RECORDS)
    assert queue(epochs=2, state=state).finished
    assert sum(lease.records for lease in drain(queue(epochs=3, state=state))) == RECORDS


def test_epochs_with_their_own_data_are_given_out_whole_and_in_turn():
    sizes = {"a": (300, 11), "b": (70,), "c": (0, 120)}
    named = {name: of_sizes(*sizes[name], directory=name) for name in sizes}
    of = TrainingData.of(*(named[name] for name in "abac"))
    leases, given_out, state = queue(5, of=of), [], QueueState()
    while not leases.finished:
        if lease := leases.take(7):
            leases.finish(lease, lease.records)
            assert leases.skipped == 0
            given_out.append((lease.epoch, lease.source.path.split("/")[0], lease.records))
            state = leases.state()
            leases = queue(5, state, of=of)  # a chief that begins again
        else:
            assert leases.batches_left == 0
            leases.next_epoch()
    for epoch, name in enumerate("abaca"):
        mine = [(path, records) for at, path, records in given_out if at == epoch]
        assert {path for path, _ in mine} == {name}
        assert sum(records for _, records in mine) == sum(sizes[name])
    assert leases.trained == 3 * 311 + 70 + 120


class Followed(FollowedData):
    """Datasets that come when a test says so."""

    def __init__(self):
        super().__init__(names_of("stream"), lambda directory: None, seconds=1.0)

    def come(self, *datasets):
        for each in datasets:
            self._take(f"{self._next:03}", each)


def test_a_followed_dataset_is_begun_when_the_one_before_is_assigned():
    data = Followed()
    leases = queue(of=data)
    assert leases.take(5) is None
    data.come(of_sizes(100, directory="a"), of_sizes(0, directory="b"), of_sizes(30, directory="c"))
    taken = drain(leases, 5)
    assert [lease.epoch for lease in taken] == [0, 0, 0, 2]
    assert [lease.source.path for lease in taken] == ["a/s0"] * 3 + ["c/s0"]
    assert (leases.epoch, leases.idle, leases.finished) == (3, False, False)
    assert leases.batches_left == 0
    for lease in taken:
        leases.finish(lease, lease.records)
    assert (leases.trained, leases.skipped) == (130, 0)
    assert leases.state() == QueueState(epoch=3, trained=130)
    assert leases.epoch_finished
    assert not leases.finished
    leases.end()
    assert leases.finished


def test_followed_datasets_are_trained_once_wherever_a_run_resumes():
    """Runs that are cut off after any number of leases, each resumed from where it was."""
    sizes, draw = [(45, 7), (0,), (120,), (9, 9), (200,)], random.Random(3)
    datasets = [of_sizes(*each, directory=f"d{k}") for k, each in enumerate(sizes)]
    state, seen = QueueState(), []
    while state.epoch < len(datasets):
        data = Followed()
        data._begin(dataclasses.replace(Position(), followed=state.epoch))
        data.come(*datasets[state.epoch :])
        leases = queue(of=data, state=state)
        for _ in range(draw.randint(1, 3)):
            if lease := leases.take(draw.randint(1, 6)):
                seen += [
                    (lease.source.path, record)
                    for record in range(lease.first, lease.first + lease.records)
                ]
                leases.finish(lease, lease.records)
        state = msgspec.json.decode(msgspec.json.encode(leases.state()), type=QueueState)
    assert len(seen) == len(set(seen)) == sum(map(sum, sizes))


def test_nothing_grows_with_the_number_of_datasets():
    """What Python holds after 4,000 datasets is what it held after 1,000, but for 20 KB."""
    data, held = Followed(), []
    leases = queue(of=data)
    tracemalloc.start()
    for number in range(4001):
        data.come(of_sizes(25, directory=f"{number:06}"))
        for lease in drain(leases):
            leases.finish(lease, lease.records)
        data.saved(leases.epoch)
        if number and number % 1000 == 0:
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert leases.trained == 4001 * 25
    assert max(held) - held[0] < 20_000
