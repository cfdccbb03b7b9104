"""Which records a closure reads, in which order, and what of a file it never touches."""

import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.data.numbered_shard import BATCH, COUNT, source_of, write
from tfps.data.record_source import Batching, RecordSource, read_batches


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "shard.tfrecord"
    return path, write(path)


# In a function, as in a closure; everything that varies is an argument.
@tf.function(autograph=False)
def _read(source, seed, first, end, block_batches, empty, threads):
    batching = Batching(Smoke().schema(), BATCH, block_batches, threads)
    data = read_batches(source, batching, seed, (first, end), empty)
    iterator = iter(data.map(lambda batch, _: batch["numbers"][:, 0]))
    count = end - first + empty

    def one(index, array):
        return index + 1, array.write(index, next(iterator))

    array = tf.TensorArray(tf.float32, tf.cast(count, tf.int32), element_shape=[None])
    _, array = tf.while_loop(lambda index, _: index < tf.cast(count, tf.int32), one, (0, array))
    return array.concat()


def read(source, block_batches=2, seed=1, part=(0, 11), empty=0, threads=1):
    numbers = [tf.constant(n, tf.int64) for n in (seed, *part)]
    values = _read(source.tensors(), *numbers, block_batches, empty, threads)
    return values.numpy().astype(int).tolist()


def test_several_threads_keep_the_order(shard):
    assert read(source_of(shard), threads=4) == read(source_of(shard))


def test_shuffling_keeps_records_in_their_block_and_depends_on_seed_and_block(shard):
    plain, shuffled = (read(source_of(shard), block) for block in (0, 2))
    assert plain == list(range(COUNT))
    for first in range(0, COUNT, 2 * BATCH):
        block = shuffled[first : first + 2 * BATCH]
        assert sorted(block) == plain[first : first + 2 * BATCH]
        assert block != sorted(block)
    assert shuffled == read(source_of(shard))
    assert shuffled != read(source_of(shard), seed=2)
    places = [np.argsort(shuffled[first : first + 2 * BATCH]).tolist() for first in (0, 2 * BATCH)]
    assert places[0] != places[1]


@pytest.mark.parametrize("block_batches", [0, 2, 3])
def test_any_part_is_read_as_in_the_whole_whatever_part_of_the_index_is_known(shard, block_batches):
    whole = read(source_of(shard), block_batches)
    block = max(1, block_batches) * BATCH
    for first, end in ((2, 11), (1, 4), (3, 7), (10, 11), (4, 4)):
        for known in (0, first * BATCH // block * block):
            part = read(source_of(shard, known), block_batches, part=(first, end))
            assert part == whole[first * BATCH : end * BATCH]
        assert read(RecordSource(str(shard[0])), block_batches, part=(first, end)) == part


def test_what_lies_before_the_nearest_known_record_is_never_read(shard, tmp_path):
    path, offsets = shard
    content = bytearray(path.read_bytes())
    # Batch 7 of blocks of 2 needs records 192 on, of which 150 is the nearest known.
    content[: offsets[150]] = b"\xff" * offsets[150]
    damaged = tmp_path / "damaged.tfrecord"
    damaged.write_bytes(content)
    expected = read(source_of(shard), part=(7, 11))
    assert read(source_of((damaged, offsets)), part=(7, 11)) == expected
    with pytest.raises(tf.errors.DataLossError):
        read(source_of((damaged, offsets)), part=(4, 11))  # from record 128


def test_no_block_is_read_ahead_that_the_part_does_not_need(shard, tmp_path):
    path, offsets = shard
    content = bytearray(path.read_bytes())
    content[offsets[128] :] = b"\xff" * (len(content) - offsets[128])
    damaged = tmp_path / "damaged.tfrecord"
    damaged.write_bytes(content)
    assert read(source_of((damaged, offsets)), part=(1, 4)) == read(source_of(shard), part=(1, 4))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_compressed_shard_is_read_from_its_beginning(shard, tmp_path, compression):
    path = tmp_path / "compressed"
    write(path, compression)
    source = RecordSource(str(path), compression)
    assert read(source) == read(source_of(shard))
    assert read(source, part=(5, 8)) == read(source_of(shard), part=(5, 8))


def test_batches_without_records_follow(shard):
    assert read(source_of(shard), part=(9, 11), empty=3) == read(source_of(shard), part=(9, 11))


def test_nothing_tunes_or_rewrites_the_pipeline(shard):
    """A tuner's thread can keep a closure from ending; a rewrite loses the offsets."""
    options = read_batches(source_of(shard).tensors(), Batching(Smoke().schema(), BATCH)).options()
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is False
