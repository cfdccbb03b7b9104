import numpy as np
import pytest

from configs.smoke import Smoke
from tfps.data import manifest
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.shards import STRIDE, RecordIndex, entries

INDEX = RecordIndex(4, (np.array([0, 100, 260]), np.array([], np.int64), np.array([0])))


def test_what_is_encoded_is_decoded() -> None:
    counts = [entries(10, 4, ""), entries(9, 4, "GZIP"), entries(4, 4, "")]
    assert counts == [3, 0, 1]
    assert RecordIndex.decode(INDEX.encode(), 4, counts) == INDEX
    assert RecordIndex.decode(INDEX.encode(), 4, [2, 1, 1]) != INDEX
    assert RecordIndex.decode(b"", 4, []) == RecordIndex(4, ())
    assert INDEX.encode()[8:16] == (100).to_bytes(8, "little")


def test_other_numbers_of_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="it has 32 bytes, not 40"):
        RecordIndex.decode(INDEX.encode(), 4, [3, 1, 1])


def test_a_writer_finds_where_records_begin(tmp_path) -> None:
    counts = (2 * STRIDE + 3, 0, STRIDE, STRIDE + 1)
    with DatasetWriter.open(str(tmp_path), "sizes", len(counts), Smoke().schema()) as writer:
        for shard, count in enumerate(counts):
            for record in range(count):
                writer.write(shard, b"%d %d" % (shard, record) + b"." * (record % 7))
        dataset = writer.finish()
    assert manifest.read(str(tmp_path)).index == dataset.index
    assert [len(offsets) for offsets in dataset.index.offsets] == [3, 0, 1, 2]
    for shard, offsets in enumerate(dataset.index.offsets):
        content = (tmp_path / dataset.shards[shard].file).read_bytes()
        for entry, offset in enumerate(offsets):
            assert content[offset + 12 :].startswith(b"%d %d" % (shard, entry * STRIDE))
