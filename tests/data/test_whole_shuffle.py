"""Records in an order that is drawn over all of them, with a memory that holds few."""

import collections
import resource
import tracemalloc

import numpy as np
import pytest

from tfps.data import record_order
from tfps.data.record_order import describe_room, scratch_for, whole_shuffle
from tfps.data.tfrecord import frame
from tfps.errors import UserError


def framed(count, seed=0, largest=300):
    """Records of all sizes, some of them equal."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, largest, count)
    return [frame(draw.integers(0, 3, size, np.uint8).tobytes()) for size in sizes]


def shuffled(records, directory, seed=1, memory=1 << 30):
    return list(whole_shuffle(iter(records), seed, str(directory), memory))


@pytest.mark.parametrize("count", [0, 1, 2, 997, 5000])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_records_come_back_in_another_order(tmp_path, count, seed):
    records = framed(count, seed)
    found = shuffled(records, tmp_path, seed)
    assert collections.Counter(found) == collections.Counter(records)
    assert count < 3 or found != records


def test_the_order_depends_on_the_seed_and_not_on_the_memory(tmp_path):
    records = framed(800)
    orders = [shuffled(records, tmp_path, 7, memory) for memory in (1, 5_000, 70_000, 1 << 30)]
    assert all(order == orders[0] for order in orders)
    assert shuffled(records, tmp_path, 8) != orders[0]


def test_every_place_is_as_likely_for_every_record(tmp_path):
    places = np.zeros((8, 8))
    records = [frame(bytes([number])) for number in range(8)]
    for seed in range(800):
        for place, record in enumerate(shuffled(records, tmp_path, seed)):
            places[records.index(record), place] += 1
    assert np.abs(places - 100).max() < 5 * 100**0.5


def test_neighbours_come_apart(tmp_path):
    records = [frame(number.to_bytes(4, "big")) for number in range(20_000)]
    order = [int.from_bytes(record[12:16], "big") for record in shuffled(records, tmp_path)]
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(20_000))[0, 1]) < 0.05


def test_records_larger_than_the_memory_come_back(tmp_path):
    records = [frame(bytes(size)) for size in (1, 300_000, 0, 200_000, 3)]
    assert sorted(shuffled(records, tmp_path, memory=1000)) == sorted(records)


def test_the_memory_is_kept_to(tmp_path, monkeypatch):
    monkeypatch.setattr(record_order, "_LEAST_READ_BYTES", 1024)
    memory, count, size = 1 << 17, 8_000, 200
    tracemalloc.start()
    try:
        records = (frame(number.to_bytes(size, "big")) for number in range(count))
        found = sum(1 for _ in whole_shuffle(records, 0, str(tmp_path), memory))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == count
    assert count * size > 10 * memory
    assert peak < 3 * memory


def test_no_file_is_to_be_seen_and_none_stays(tmp_path):
    def failing():
        for number, record in enumerate(framed(500)):
            assert list(tmp_path.iterdir()) == []
            if number == 400:
                raise UserError("a bad row")
            yield record

    with pytest.raises(UserError, match="a bad row"):
        shuffled(failing(), tmp_path, memory=1000)
    order = whole_shuffle(framed(500), 0, str(tmp_path), 1000)
    next(order)
    assert list(tmp_path.iterdir()) == []
    order.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match=r"temporary file in .*absent, which cannot be written"):
        shuffled(framed(5), tmp_path / "absent")


def test_a_full_disk_is_told_of(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot be written \(File too large\); it needs as"):
            shuffled(framed(500), tmp_path, memory=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_room_is_said_where_the_memory_is_too_small():
    assert describe_room("/data/shuffled", 1 << 20) == ""
    told = describe_room("/data/shuffled", 3 << 30)
    assert told.startswith("the shuffle needs room in /data/shuffled for all records, in addition")
    assert told.endswith("the input has 3 GiB")
    assert scratch_for("/data/shuffled") == "/data/shuffled"
    assert not scratch_for("gs://bucket/data").startswith("gs:")
