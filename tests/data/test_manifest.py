import json
from pathlib import Path

import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tfps.data import dataset_writer, manifest
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.examples import encode
from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.storage import files

TASK = Smoke()
NO_FILES = ("../few", "/etc/passwd", "a/b", "", ".", "..", "few\0", "/")
RECORD = encode(
    {"numbers": [1.0, 2.0, 3.0, 4.0], "token": 3, "label": 1}, TASK.features(), TASK.labels()
)


@pytest.fixture
def dataset(tmp_path: Path) -> Manifest:
    with DatasetWriter.open(str(tmp_path / "data"), "few", 3, TASK.schema()) as writer:
        for index in range(5):
            writer.write(index % 2, RECORD)
        return writer.finish(rejected_rows=2, best_auc=0.75)


def manifest_path(dataset: Manifest) -> Path:
    return Path(dataset.directory) / "manifest.json"


def test_what_is_written_is_read(dataset: Manifest) -> None:
    read = manifest.read(dataset.directory)
    assert read == dataset
    assert (read.records, read.rejected_rows, read.best_auc) == (5, 2, 0.75)
    assert [shard.file for shard in read.shards] == [
        f"few-0000{index}-of-00003.tfrecord" for index in range(3)
    ]
    assert [shard.records for shard in read.shards] == [3, 2, 0]
    for shard in read.shards:
        path = read.path_of(shard)
        assert sum(1 for _ in tf.data.TFRecordDataset(path)) == shard.records
        assert Path(path).stat().st_size == shard.bytes
        assert files.checksum_of_file(path) == shard.crc32c
    assert read.bytes == sum(shard.bytes for shard in read.shards)
    assert json.loads(manifest_path(dataset).read_text())["format"] == 3
    assert read.shards[2].crc32c == "00000000"


def test_the_checksum_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "digits").write_text("123456789")
    assert files.checksum_of_file(str(tmp_path / "digits")) == "e3069283"


def test_directories_that_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^--data.train=.*absent does not exist; run trainer\.prep"
    ):
        manifest.read(str(tmp_path / "absent"), "--data.train")
    with pytest.raises(UserError, match=r"has no manifest\.json; run trainer\.prepare"):
        manifest.read(str(tmp_path))
    with pytest.raises(UserError, match=r"is no directory of that name; .* trainer\.index"):
        manifest.read(str(tmp_path / "*.tfrecord"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file; name the directory"):
        manifest.read(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has format None, but this version reads 3"),
        ('{"format": 7}', "has format 7"),
        ('{"format": 3}', "missing required field `name`"),
        (
            '{"format": 3, "name": "n", "features": [3]}',
            r"Expected `object`, .* `\$\.features\[0\]`",
        ),
    ],
)
def test_manifests_that_cannot_be_understood(dataset: Manifest, text: str, message: str) -> None:
    manifest_path(dataset).write_text(text)
    with pytest.raises(UserError, match=message):
        manifest.read(dataset.directory)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("records", "3", r"Expected `int`, got `str` - at `\$\.shards\[0\]\.records`"),
        *(("file", name, "not the name of a file") for name in NO_FILES),
        ("compression", "LZ4", r"Invalid enum value 'LZ4' - at `\$\.shards\[0\]\.compression`"),
        ("generation", None, r"Expected `int`, got `null` - at `\$\.shards\[0\]\.generation`"),
    ],
)
def test_a_shard_entry_that_is_wrong(dataset: Manifest, key: str, value: str, message: str) -> None:
    content = json.loads(manifest_path(dataset).read_text())
    content["shards"][0][key] = value
    manifest_path(dataset).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        manifest.read(dataset.directory)


@pytest.mark.parametrize("name", NO_FILES)
def test_no_file_outside_a_dataset_is_read_or_deleted(dataset: Manifest, name: str) -> None:
    precious = Path(dataset.directory).parent / "few"
    precious.write_text("precious")
    content = json.loads(manifest_path(dataset).read_text())
    for where in (content["index"], content["shards"][0]):
        kept, where["file"] = where["file"], name
        manifest_path(dataset).write_text(json.dumps(content))
        with pytest.raises(UserError, match="is not the name of a file"):
            manifest.read(dataset.directory)
        with pytest.raises(UserError, match="is not the name of a file"):
            DatasetWriter.open(dataset.directory, "new", 1, TASK.schema(), overwrite=True)
        where["file"] = kept
    manifest_path(dataset).write_text(json.dumps(content))
    list_file = Path(dataset.directory) / dataset_writer.FILE
    list_file.write_text(json.dumps({"files": [name]}))
    with pytest.raises(UserError, match="is no list of files in its directory"):
        DatasetWriter.open(dataset.directory, "new", 1, TASK.schema(), overwrite=True)
    list_file.unlink()
    assert manifest.read(dataset.directory) == dataset
    assert precious.read_text() == "precious"


def test_an_index_that_is_wrong(dataset: Manifest) -> None:
    index = Path(dataset.directory) / "few.index"
    content = index.read_bytes()
    index.write_bytes(bytes(8) + content[8:] + bytes(8))
    with pytest.raises(
        UserError, match=r"few\.index is not the one that manifest\.json was written"
    ):
        manifest.read(dataset.directory)
    index.unlink()
    with pytest.raises(UserError, match=r"the index few\.index is missing; run trainer\.prepare"):
        manifest.read(dataset.directory)
    index.write_bytes(content)
    path = manifest_path(dataset)
    path.write_text(path.read_text().replace('"records": 3', '"records": 1500'))
    with pytest.raises(UserError, match=r"does not fit the shards .*it has 16 bytes, not 24"):
        manifest.read(dataset.directory)


def test_a_dataset_whose_index_is_lost_can_be_replaced(dataset: Manifest) -> None:
    (Path(dataset.directory) / "few.index").unlink()
    with DatasetWriter.open(dataset.directory, "few", 1, TASK.schema(), overwrite=True) as writer:
        written = writer.finish()
    assert manifest.read(dataset.directory) == written


def test_missing_and_cut_shards_are_named(dataset: Manifest) -> None:
    Path(dataset.path_of(dataset.shards[0])).unlink()
    path = Path(dataset.path_of(dataset.shards[1]))
    path.write_bytes(path.read_bytes()[:-3])
    size = dataset.shards[1].bytes
    with pytest.raises(UserError) as caught:
        manifest.read(dataset.directory)
    assert "shard few-00000-of-00003.tfrecord is missing" in str(caught.value)
    assert f"00001-of-00003.tfrecord has {size - 3} bytes, but the manifest says {size}" in str(
        caught.value
    )


def test_where_shards_may_be_cut_none_may_be_longer(
    dataset: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    path, size = Path(dataset.path_of(dataset.shards[1])), dataset.shards[1].bytes
    path.write_bytes(path.read_bytes()[:-3])
    read = manifest.read(dataset.directory, may_be_cut=True)
    assert [shard.records for shard in read.shards] == [shard.records for shard in dataset.shards]
    assert f"few-00001-of-00003.tfrecord is cut off: it has {size - 3} bytes" in caplog.text
    path.write_bytes(path.read_bytes() + bytes(4))
    with pytest.raises(UserError, match=f"00001-of-00003.tfrecord has {size + 1} bytes, but"):
        manifest.read(dataset.directory, may_be_cut=True)


def test_a_dataset_is_not_overwritten_unasked(dataset: Manifest) -> None:
    with pytest.raises(UserError, match=r"already holds a dataset.*--overwrite"):
        DatasetWriter.open(dataset.directory, "new", 1, TASK.schema())
    assert manifest.read(dataset.directory) == dataset
    with DatasetWriter.open(dataset.directory, "new", 1, TASK.schema(), overwrite=True) as writer:
        assert manifest.read(dataset.directory) == dataset
        writer.finish()
    assert sorted(path.name for path in Path(dataset.directory).iterdir()) == [
        "manifest.json",
        "new-00000-of-00001.tfrecord",
        "new.index",
    ]


def test_a_dataset_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with DatasetWriter.open(str(tmp_path), "few", 2, TASK.schema()) as writer:
            writer.write(0, RECORD)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        DatasetWriter.open(str(tmp_path / "file" / "data"), "few", 1, TASK.schema())
    with pytest.raises(UserError, match="--name=a/b"):
        DatasetWriter.open(str(tmp_path), "a/b", 1, TASK.schema())
