import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.training_fixtures import dataset
from tfps.data import manifest, shards
from tfps.errors import RunError, UserError
from tfps.storage import objects

DIRECTORY = "gs://bucket/data"
SHARDS = 6


@pytest.fixture(name="data", scope="module")
def data_fixture(cloud_process):
    return dataset(DIRECTORY, records=100, shards=SHARDS)


def rewrite(path, content=None):
    with tf.io.gfile.GFile(path, "rb") as file:
        held = file.read()
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(held if content is None else content(held))


def test_a_manifest_is_held_against_one_listing(cloud, data):
    found = manifest.read(DIRECTORY)
    assert cloud.counted()["requests"]["stat"] < SHARDS
    listed = objects.list_objects(DIRECTORY)
    assert [shard.generation for shard in found.shards] == [
        listed[shard.file].generation for shard in found.shards
    ]
    assert all(shard.generation > 0 for shard in found.shards)
    with tf.io.gfile.GFile(f"{DIRECTORY}/manifest.json") as file:
        assert str(found.shards[0].generation) in file.read()


def test_a_copy_has_other_generations_and_is_as_good(cloud, data, tmp_path):
    (tmp_path / "local").mkdir()
    for name in tf.io.gfile.listdir(DIRECTORY):
        tf.io.gfile.copy(f"{DIRECTORY}/{name}", f"gs://bucket/copy/{name}")
        tf.io.gfile.copy(f"{DIRECTORY}/{name}", str(tmp_path / "local" / name))
    found = manifest.read("gs://bucket/copy")
    assert [shard.crc32c for shard in found.shards] == [shard.crc32c for shard in data.shards]
    assert not {s.generation for s in found.shards} & {s.generation for s in data.shards}
    local = manifest.read(str(tmp_path / "local"))
    assert {shard.generation for shard in local.shards} == {0}


def test_other_content_of_the_same_size_is_refused(cloud, data):
    for name in tf.io.gfile.listdir(DIRECTORY):
        tf.io.gfile.copy(f"{DIRECTORY}/{name}", f"gs://bucket/other/{name}", overwrite=True)
    changed = data.shards[2]
    rewrite(f"gs://bucket/other/{changed.file}", lambda held: held[:-1] + b"\0")
    with pytest.raises(UserError, match=f"{changed.file} has the crc32c ........, but the"):
        manifest.read("gs://bucket/other", "--data.train")
    tf.io.gfile.remove(f"gs://bucket/other/{data.shards[4].file}")
    with pytest.raises(UserError, match=f"{data.shards[4].file} is missing; copy the dataset"):
        manifest.read("gs://bucket/other", "--data.train")


def test_a_shard_that_is_written_again_is_refused_by_both_generations(cloud, data):
    found = manifest.read(DIRECTORY)
    shards.refuse_replaced(DIRECTORY, found.shards)
    replaced = found.shards[3]
    rewrite(f"{DIRECTORY}/{replaced.file}")
    now = objects.list_objects(DIRECTORY)[replaced.file].generation
    with pytest.raises(RunError) as refused:
        shards.refuse_replaced(DIRECTORY, found.shards)
    assert str(refused.value).startswith(
        f"{DIRECTORY}/{replaced.file} was replaced while it was trained on: its generation was "
        f"{replaced.generation}, now its generation is {now}."
    )
    tf.io.gfile.remove(f"{DIRECTORY}/{found.shards[0].file}")
    with pytest.raises(RunError, match=f"was {found.shards[0].generation}, now it is gone"):
        shards.refuse_replaced(DIRECTORY, found.shards)


def test_local_files_have_no_generations(tmp_path):
    data = dataset(tmp_path / "data", records=10, shards=1)
    (tmp_path / "data" / data.shards[0].file).write_bytes(b"")
    shards.refuse_replaced(data.directory, data.shards)
