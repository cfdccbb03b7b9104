"""A dataset in place of another: whatever happens, one of the two is there, and whole."""

import signal
from pathlib import Path

import pytest
import tensorflow as tf

from configs.smoke import Smoke, get_config
from tests.loaded import client
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tests.trainer.one_dataset import prepare
from tests.training_fixtures import dataset
from tfps.data import dataset_writer, manifest
from tfps.data.dataset_writer import DatasetWriter
from tfps.errors import UserError
from trainer.datasets.indexing import index

ROWS = "0.1,0.2,0.3,0.4,3,1\n"
FIRST = "smoke-00000-of-00001.tfrecord"
SECOND = "smoke.2-00000-of-00001.tfrecord"


def names(directory: object) -> list[str]:
    return sorted(tf.io.gfile.listdir(str(directory)))


def replace(directory: object, shards: int = 1) -> manifest.Manifest:
    with DatasetWriter.open(
        str(directory), "smoke", shards, Smoke().schema(), overwrite=True
    ) as writer:
        return writer.finish()


def test_a_conversion_that_fails_leaves_the_old_dataset(tmp_path: Path) -> None:
    out, rows = tmp_path / "data", tmp_path / "rows.csv"
    rows.write_text(ROWS * 3)
    old = prepare(get_config, [str(rows)], str(out), 1)
    rows.write_text(ROWS * 4 + "no row\n")
    with pytest.raises(UserError, match=r"rows\.csv line 5"):
        prepare(get_config, [str(rows)], str(out), 1, overwrite=True)
    assert manifest.read(str(out)) == old
    assert names(out) == ["manifest.json", FIRST, "smoke.index"]
    new = prepare(get_config, [str(rows)], str(out), 1, max_bad_rows=1, overwrite=True)
    assert manifest.read(str(out)) == new
    assert (new.records, new.name) == (4, "smoke.2")
    assert names(out) == ["manifest.json", SECOND, "smoke.2.index"]
    assert replace(out).shards[0].file == FIRST


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_a_killed_writer_leaves_is_cleaned_by_the_next(tmp_path: Path, moment: str) -> None:
    old = dataset(tmp_path, records=10, shards=1)
    done = client.run("tests.data.killed_writer", str(tmp_path), moment)
    assert done.returncode == -signal.SIGKILL
    assert dataset_writer.FILE in names(tmp_path)
    found = manifest.read(str(tmp_path))
    assert found == old if moment == "before" else found.shards[0].file == SECOND
    (tmp_path / "mine.tfrecord").write_text("of another dataset")
    made = replace(tmp_path)
    assert manifest.read(str(tmp_path)) == made
    stem = made.name
    assert names(tmp_path) == sorted(
        ["manifest.json", "mine.tfrecord", f"{stem}.index", f"{stem}-00000-of-00001.tfrecord"]
    )


def test_files_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / FIRST).write_text("of another dataset")
    assert replace(tmp_path).shards[0].file == SECOND
    assert (tmp_path / FIRST).read_text() == "of another dataset"


def test_an_index_is_replaced_when_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(tmp_path, records=10, shards=2)
    first, _ = index(get_config(), str(tmp_path), 1, overwrite=True)
    shards = [shard.file for shard in data.shards]
    assert names(tmp_path) == sorted(["manifest.json", "smoke.2.index", *shards])

    def fail(made: manifest.Manifest) -> None:
        (tmp_path / manifest.index_file(made.name)).write_text("x")
        raise tf.errors.UnavailableError(None, None, "the storage is away")

    monkeypatch.setattr(manifest, "write", fail)
    with pytest.raises(UserError, match="the storage is away"):
        index(get_config(), str(tmp_path), 1, overwrite=True)
    monkeypatch.undo()
    assert manifest.read(str(tmp_path)) == first
    (tmp_path / "manifest.json").write_text("{")
    second, _ = index(get_config(), str(tmp_path), 1, overwrite=True)
    assert manifest.read(str(tmp_path)) == second
    with pytest.raises(UserError, match="--name=a/b"):
        index(get_config(), str(tmp_path), 1, "a/b", overwrite=True)


def test_on_gs_the_manifest_is_the_switch(cloud) -> None:
    directory = "gs://bucket/replaced"
    old = dataset(directory, records=20, shards=2)
    writer = DatasetWriter.open(directory, "smoke", 2, Smoke().schema(), overwrite=True)
    with writer:
        writer.write(0, b"record")
        held = manifest.read(directory).shards
        assert [shard.crc32c for shard in held] == [shard.crc32c for shard in old.shards]
        writer.finish()
    assert [shard.file for shard in manifest.read(directory).shards] == writer.files
    assert names(directory) == sorted(["manifest.json", "smoke.2.index", *writer.files])
    cloud.set(faults=(Fault("403", ("write",), fraction=1.0),))
    with pytest.raises(UserError, match="cannot be written"):
        replace(directory)
    cloud.set()
    assert [shard.file for shard in manifest.read(directory).shards] == writer.files
