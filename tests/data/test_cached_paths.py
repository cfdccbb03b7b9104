import os

import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.training_fixtures import Trainer, dataset
from tfps.data import manifest
from tfps.data.shard_cache import ASKED, SHARDS, CachedPaths, ShardCache, copy_name, note
from tfps.errors import UserError

DIRECTORY = "gs://bucket/cached"


@pytest.fixture(name="data", scope="module")
def data_fixture(cloud_process):
    dataset(DIRECTORY, records=60, shards=3)
    return manifest.read(DIRECTORY)


def locate(cached, path):
    located = tf.function(cached.locate, input_signature=[tf.TensorSpec([], tf.string)])
    return located(path).numpy().decode()


def test_a_copy_is_used_once_it_is_there_and_each_use_leaves_a_note(data, tmp_path):
    cached = CachedPaths(str(tmp_path / "cache"), [data])
    shard = data.shards[1]
    path = data.path_of(shard)
    assert locate(cached, path) == path
    name = copy_name(path, shard.generation)
    asked = tmp_path / "cache" / ASKED / name
    assert asked.read_text() == note(path, shard.generation)
    os.utime(asked, ns=(0, 0))
    copy = tmp_path / "cache" / SHARDS / name
    copy.parent.mkdir()
    copy.write_bytes(b"")
    assert locate(cached, path) == str(copy)
    assert asked.stat().st_mtime_ns > 0
    assert locate(cached, data.path_of(data.shards[2])) == data.path_of(data.shards[2])


def test_a_directory_that_cannot_be_written_is_done_without(data, tmp_path):
    (tmp_path / "file").write_text("")
    path = data.path_of(data.shards[0])
    assert locate(CachedPaths(str(tmp_path / "file"), [data]), path) == path


def test_local_shards_and_no_directory_need_no_graph(data, tmp_path):
    local = dataset(tmp_path / "data", records=10, shards=1)
    path = tf.constant("x")
    assert CachedPaths(str(tmp_path), [local]).locate(path) is path
    assert CachedPaths("", [data]).locate(path) is path
    assert locate(CachedPaths(str(tmp_path), [data]), "/other") == "/other"


@pytest.mark.parametrize("directory", ["gs://bucket/cache", "/tmp/a*", "/tmp/[x]"])
def test_directories_that_are_refused(directory):
    with pytest.raises(UserError, match="must be a directory on the worker's disk"):
        CachedPaths(directory, [])


def test_a_second_epoch_reads_copies(cloud, data, tmp_path):
    cached = CachedPaths(str(tmp_path), [data])
    trainer = Trainer(data, parts=1, locate=cached.locate)
    queue = trainer.queue(epochs=2)
    cloud.counted()
    trainer.coordinator.train(queue, lambda: False, lambda progress: None)
    queue.next_epoch()
    assert cloud.counted()["requests"]["read"] >= 3
    ShardCache(str(tmp_path), limit_bytes=1 << 20).fetch_asked()
    cloud.counted()
    trainer.coordinator.train(queue, lambda: False, lambda progress: None)
    assert "read" not in cloud.counted()["requests"]
    assert queue.trained == 120
