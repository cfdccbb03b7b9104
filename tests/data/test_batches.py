"""What is read of a shard with bad records: first as far as it goes, then around them."""

import gzip
import os
import zlib

import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests import corruption
from tests.data.numbered_shard import BATCH, COUNT, source_of, write
from tfps.data import bad_records
from tfps.data.feature import Feature
from tfps.data.record_source import Batching, RecordSource, read_batches, read_good_batches
from tfps.data.schema import Schema

SCHEMA = Smoke().schema()
FEATURES, LABELS = SCHEMA
BATCHES = -(-COUNT // BATCH)
NONE = (-1, 0, [])


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "shard.tfrecord"
    return path, write(path)


def read(source, block_batches=2, part=(0, BATCHES), threads=1):
    """Number, bad records and records of the batches of a part, and of one more."""
    first, end = part
    in_block = max(1, block_batches)
    source = source._replace(end=min(-(-end // in_block) * in_block * BATCH, COUNT))
    numbers = [tf.constant(number, tf.int64) for number in (1, first, end)]
    batching = Batching(SCHEMA, BATCH, block_batches, threads)
    part = numbers[1], numbers[2]
    batches = read_good_batches(source.tensors(), batching, numbers[0], part)
    return [
        (int(number), int(bad), features["numbers"][:, 0].numpy().astype(int).tolist())
        for number, (bad, features, _) in batches.take(end - first + 1)
    ]


def in_order(shard, block_batches=2):
    """The records of the batches of a good shard."""
    seed = tf.constant(1, tf.int64)
    batches = read_batches(source_of(shard).tensors(), Batching(SCHEMA, BATCH, block_batches), seed)
    return [batch["numbers"][:, 0].numpy().astype(int).tolist() for batch, _ in batches]


def around(source):
    """The source with its bad records passed over."""
    found = bad_records.find(source, (*FEATURES, *LABELS), 0, COUNT)
    return source._replace(
        bad_ranges=tuple((bad.number, bad.records, bad.next_offset) for bad in found)
    )


def less(batches, bad):
    return [
        (number, len(bad.intersection(batch)), [record for record in batch if record not in bad])
        for number, batch in enumerate(batches)
    ]


@pytest.mark.parametrize("block_batches", [0, 2, 3])
def test_a_good_shard_is_read_as_ever(shard, block_batches):
    whole = less(in_order(shard, block_batches), set())
    source = source_of(shard)
    assert read(source, block_batches) == [*whole, NONE]
    assert read(source, block_batches, threads=3) == [*whole, NONE]
    assert read(source, block_batches, (4, 4)) == [NONE]
    assert read(source_of(shard, 128), block_batches, (6, 9)) == [*whole[6:9], NONE]


def test_features_need_no_vocabulary(shard):
    numbers, part = FEATURES[:1], (tf.constant(0, tf.int64), tf.constant(1, tf.int64))
    source = source_of(shard)._replace(end=BATCH).tensors()
    batches = read_good_batches(source, Batching(Schema(numbers, ()), BATCH), part[0], part)
    [(number, (_, held, _))] = batches.take(1)
    assert (number, held["numbers"].shape) == (0, (BATCH, 4))


def of_another_type(features):
    features["numbers"].int64_list.value.append(1)


def without_a_feature(features):
    del features["token"]


def with_an_id_outside(features):
    features["token"].int64_list.value[0] = 20


def with_a_label_outside(features):
    features["label"].int64_list.value[0] = -1


def checksum(path):
    corruption.flip(path, (40, 41, 170), corruption.DATA)


def length(path):
    """Behind it reading continues at the next record whose beginning is known."""
    corruption.flip(path, (40, 170), corruption.LENGTH)


def cut_off(path):
    [offset] = corruption.flip(path, (170,), corruption.DATA)
    os.truncate(path, offset + 20)


OF_CONTENT = [of_another_type, without_a_feature, with_an_id_outside, with_a_label_outside]
DAMAGED = {
    checksum: {40, 41, 170},
    length: {*range(40, 50), *range(170, 200)},
    cut_off: {*range(170, COUNT)},
}


def with_bad_records(path, kind):
    """A shard with bad records of a kind, and which they are."""
    if kind in OF_CONTENT:
        bad = {40, 41, 170}
        return (path, write(path, corrupt=dict.fromkeys(bad, kind))), bad
    offsets = write(path)
    kind(path)
    return (path, offsets), DAMAGED[kind]


@pytest.mark.quick("3-of_another_type", "3-with_an_id_outside", "3-cut_off", "0-checksum")
@pytest.mark.parametrize("kind", [*OF_CONTENT, *DAMAGED])
@pytest.mark.parametrize("block_batches", [3, 0])
def test_bad_records_cost_no_other_and_move_no_other(shard, tmp_path, kind, block_batches):
    whole = in_order(shard, block_batches)
    corrupt_shard, bad = with_bad_records(tmp_path / "corrupt", kind)
    source = source_of(corrupt_shard)
    halted = read(source, block_batches)
    stop = next(n for n, (number, _, _) in enumerate(halted) if number != n)
    assert halted[:stop] == less(whole, set())[:stop]
    assert all(number != n for n, (number, _, _) in enumerate(halted) if n >= stop)
    first_bad = next(n for n, batch in enumerate(whole) if bad.intersection(batch))
    block = max(1, block_batches)
    assert first_bad // block * block <= stop <= first_bad

    source = around(source)
    assert read(source, block_batches) == [*less(whole, bad), NONE]
    for first, end in ((1, 2), (3, 6), (6, BATCHES)):
        known = first // block * block * BATCH
        part = source_of(corrupt_shard, known)._replace(bad_ranges=source.bad_ranges)
        expected = less(whole, bad)[first:end]
        assert read(part, block_batches, (first, end)) == [*expected, NONE]


@pytest.mark.parametrize("compression", [gzip.compress, zlib.compress])
def test_a_compressed_shard_is_read_around_its_bad_records(shard, tmp_path, compression):
    path, _ = shard
    damaged = tmp_path / "damaged"
    damaged.write_bytes(path.read_bytes())
    corruption.flip(damaged, (40, 170), corruption.DATA)
    kind = compression.__module__.upper()
    (tmp_path / "compressed").write_bytes(compression(damaged.read_bytes()))
    source = around(RecordSource(str(tmp_path / "compressed"), kind, end=COUNT))
    assert read(source) == [*less(in_order(shard), {40, 170}), NONE]


def test_values_of_varying_length_are_read_and_checked_as_well(tmp_path):
    lengths = {0: [1], 1: [], 2: [0, 5], 3: [4, 3]}  # ids of a vocabulary of 5

    def tagged(number):
        return lambda features: features["tags"].int64_list.value.extend(lengths[number % 4])

    features = (*FEATURES, Feature("tags", "int64", (None,), 5))
    shard = tmp_path / "shard", write(tmp_path / "shard", corrupt={n: tagged(n) for n in range(8)})
    found = bad_records.find(source_of(shard), features, 0, 8)
    assert [bad.number for bad in found] == [2, 6]
    ranges = tuple((bad.number, 1, bad.next_offset) for bad in found)
    numbers = [tf.constant(number, tf.int64) for number in (1, 0, 2)]

    def tags(source):
        part = (numbers[1], numbers[2])
        batches = read_good_batches(source, Batching(Schema(features, LABELS), 4), numbers[0], part)
        return [(int(n), read["tags"].to_list()) for n, (_, read, _) in batches.take(3)]

    source = source_of(shard)._replace(end=8)
    assert tags(source.tensors()) == [(-1, [])] * 3
    good = [[1], [], [4, 3]]
    assert tags(source._replace(bad_ranges=ranges).tensors()) == [(0, good), (1, good), (-1, [])]


def test_a_file_that_cannot_be_opened_comes_to_an_end():
    source = RecordSource("/nowhere", end=COUNT)
    assert read(source) == [NONE] * (BATCHES + 1)


def test_nothing_tunes_or_rewrites_the_pipeline(shard):
    source, part = source_of(shard).tensors(), (tf.constant(0, tf.int64), tf.constant(1, tf.int64))
    seed = tf.constant(1, tf.int64)
    options = read_good_batches(source, Batching(SCHEMA, BATCH, 2), seed, part).options()
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is False
