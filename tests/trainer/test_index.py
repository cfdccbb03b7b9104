import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import tensorflow as tf

from configs import smoke
from tests.data.example_records import example, list_with_context, value
from tests.loaded import client
from tests.models import TaskOf
from tfps.data import examples, manifest, schema
from tfps.data.examples import ValueCounts
from tfps.data.feature import Feature
from tfps.data.shards import STRIDE
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.storage import files
from trainer.datasets.generation import generate
from trainer.datasets.indexing import copy_shuffled, files_to_copy, index

SMOKE = smoke.get_config()


NUMBERS, TOKEN = SMOKE.task.features()


def record(number: int, features: Sequence[Feature] = (NUMBERS, TOKEN)) -> bytes:
    numbers = [float(number), 0.0, 0.0, 0.0]
    values = {"numbers": numbers, "token": number % 20, "label": number % 2}
    return examples.encode(values, features, SMOKE.task.labels())


def write(path: Path, records: Iterable[bytes], compression: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for each in records:
            writer.write(each)
    return path


def refused(data: object, message: str, **arguments) -> None:
    with pytest.raises(UserError, match=message):
        index(SMOKE, str(data), 1, **arguments)


def test_files_become_a_dataset_where_they_are(tmp_path: Path) -> None:
    counts = {"a.tfrecord": (STRIDE + 1, ""), "b.tfrecord": (0, ""), "c.tfrecord.gz": (5, "GZIP")}
    counts["d.tfrecord"] = (7, "ZLIB")
    for name, (count, compression) in counts.items():
        write(tmp_path / name, map(record, range(count)), compression)
    (tmp_path / "_SUCCESS").touch()
    index(SMOKE, str(tmp_path), 1, name="foreign")
    made = manifest.read(str(tmp_path))
    schema.check(made, SMOKE.task.schema(), "--data.train")
    assert {shard.file: (shard.records, shard.compression) for shard in made.shards} == counts
    assert [offsets.tolist() for offsets in made.index.offsets] == [
        [0, (16 + len(record(1))) * STRIDE],
        [],
        [],
        [],
    ]
    for shard in made.shards:
        assert files.checksum_of_file(made.path_of(shard)) == shard.crc32c
    refused(tmp_path, "is a dataset already; say --overwrite")
    (tmp_path / "d.tfrecord").unlink()
    index(SMOKE, f"{tmp_path}/*.tfrecord*", 1, overwrite=True)
    found = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(UserError, match="were there before their manifest"):
        generate(SMOKE, str(tmp_path), 10, 1, 0, 0, "smoke", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == found
    assert len(manifest.read(str(tmp_path)).shards) == 3


def test_the_command_tells_of_damaged_records(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        path = write(tmp_path / f"{name}.tfrecord", map(record, range(10)))
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    flags = ["--config=configs/smoke.py", f"--data={tmp_path}"]
    run = client.run("trainer.index", *flags)
    assert (run.returncode, run.stderr) == (0, "")
    assert "smoke: 30 records in 3 shards (2.432 KiB)" in run.stdout
    assert "c.tfrecord: 1 damaged records, the first of them record 9 (byte " in run.stdout
    assert manifest.read(str(tmp_path)).records == 30


def test_a_shuffled_copy_goes_to_another_directory(tmp_path: Path) -> None:
    data, output = tmp_path / "data", str(tmp_path / "shuffled")
    write(data / "a.tfrecord", map(record, range(50)))
    write(data / "b.tfrecord.gz", map(record, range(50, 60)), "GZIP")
    before = {path: path.read_bytes() for path in data.iterdir()}
    made = copy_shuffled(SMOKE, files_to_copy(str(data)), output, seed=1)
    assert {path: path.read_bytes() for path in data.iterdir()} == before
    assert made == manifest.read(output)
    assert [shard.records for shard in made.shards] == [30, 30]
    held = [list(tf.data.TFRecordDataset(made.path_of(shard))) for shard in made.shards]
    numbers = [each.numpy() for some in held for each in some]
    assert sorted(numbers) == sorted(map(record, range(60)))
    assert numbers != sorted(numbers)
    again = copy_shuffled(SMOKE, files_to_copy(f"{data}/*.tf*"), output, seed=1, overwrite=True)
    assert [shard.crc32c for shard in again.shards] == [shard.crc32c for shard in made.shards]
    with pytest.raises(UserError, match=r"--output=.*data/ holds files of --data"):
        copy_shuffled(SMOKE, files_to_copy(str(data)), f"{tmp_path}/./data/", seed=1)
    write(data / "c.tfrecord", [record(1), b"no example"])
    with pytest.raises(
        UserError, match=r"c\.tfrecord: record 1 \(byte \d+\) is no tf.* is not cop"
    ):
        copy_shuffled(SMOKE, files_to_copy(str(data)), str(tmp_path / "bad"), seed=1)
    assert list((tmp_path / "bad").iterdir()) == []
    assert files_to_copy(output) == [again.path_of(shard) for shard in again.shards]
    write(Path(output) / "left.tfrecord", [record(1)])  # is no part of the dataset
    assert len(files_to_copy(output)) == 2
    (data / "replacing.json").touch()
    with pytest.raises(UserError, match="is where a dataset is written, or was when"):
        files_to_copy(str(data))


def test_flags_of_a_shuffled_copy_go_together(tmp_path: Path) -> None:
    path = write(tmp_path / "data" / "a.tfrecord", map(record, range(10)))
    given = ["--config=configs/smoke.py", f"--data={path}"]
    output = f"--output={tmp_path / 'shuffled'}"
    run = client.run("trainer.index", *given, "--shuffle=whole", output, "--shuffle_seed=5")
    assert (run.returncode, run.stderr) == (0, "")
    assert "smoke: 10 records in 1 shards (830 B)" in run.stdout
    run = client.run("trainer.index", *given, "--shuffle=whole")
    assert (run.returncode, run.stdout) == (2, "")
    assert "since the files stay as they are: say where with --output=DIR" in run.stderr
    run = client.run("trainer.index", *given, output)
    assert (run.returncode, run.stdout) == (2, "")
    assert "goes with --shuffle=whole" in run.stderr


def test_files_that_are_no_records(tmp_path: Path) -> None:
    refused(tmp_path / "absent.tfrecord", "absent.tfrecord: no such file")
    refused(tmp_path / "*.tfrecord", r"--data=.*\*\.tfrecord: no such file")
    refused(tmp_path, "holds no files")
    (tmp_path / "notes.txt").write_text("age,income\n39,<=50K\n")
    refused(tmp_path, r"notes\.txt is no TFRecord file; name the files that are with a glob")
    (tmp_path / "rows.tfrecord").write_text("age,income\n39,<=50K\n")
    refused(
        tmp_path, r"rows\.tfrecord is no TFRecord file: record 0 has a length .*trainer\.prepare"
    )
    (tmp_path / "rows.tfrecord").unlink()
    write(tmp_path / "sub" / "a.tfrecord", [record(1)])
    refused(tmp_path / "*", "sub is a directory; name files only")
    write(tmp_path / "other" / "a.tfrecord", [record(1)])
    refused(tmp_path / "*" / "*.tfrecord", r"names files in 2 directories \(.*index each")
    empty = write(tmp_path / "empty.tfrecord", [])
    refused(empty, "empty.tfrecord holds no records")


def test_damaged_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", map(record, range(3)))
    size = path.stat().st_size
    os.truncate(path, size - 5)
    refused(path, rf"record 2 \(byte {size // 3 * 2}\) is cut off: the file ends after")
    path = write(tmp_path / "b.tfrecord", map(record, range(300)), "GZIP")
    os.truncate(path, path.stat().st_size - 5)
    refused(path, r"record \d+ \(byte \d+\) cannot be decompressed")


def test_records_of_another_schema(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [record(1), record(2, [NUMBERS])])
    refused(path, r"a\.tfrecord: record 1 \(byte \d+\) has no 'token' \(it has label, numbers\)")
    write(path, [tf.train.Example().SerializeToString()])
    refused(path, r"record 0 \(byte 0\) has no 'numbers' \(it has nothing\)")
    write(path, [b"no example"])
    refused(path, r"record 0 \(byte 0\) is no tf\.train\.Example; the config's features\(\) must")
    assert not (tmp_path / manifest.FILE).exists()


@pytest.mark.parametrize(
    ("name", "compression"),
    [("part-r-0000{}", ""), ("part-r-0000{}.gz", "GZIP"), ("part-0000{}-c000.tfrecord", "")],
)
def test_a_directory_is_taken_as_spark_writes_it(
    tmp_path: Path, name: str, compression: str
) -> None:
    for part, count in enumerate((3, 0, 2)):
        path = write(tmp_path / name.format(part), map(record, range(count)), compression)
        (tmp_path / f".{path.name}.crc").write_bytes(b"crc\0")
    for other in ("_SUCCESS", "._SUCCESS.crc", "_metadata"):
        (tmp_path / other).write_bytes(b"crc\0")
    (tmp_path / "_temporary").mkdir()
    for data in (str(tmp_path), f"{tmp_path}/*", str(tmp_path)):  # the last beside its manifest
        if data.endswith("*"):
            (tmp_path / manifest.FILE).unlink()
            (tmp_path / "smoke.index").unlink()
        made, _ = index(SMOKE, data, 1, overwrite=True)
        assert [shard.records for shard in made.shards] == [3, 0, 2]
    refused(
        tmp_path / ".*", r"\.crc is no TFRecord file", overwrite=True
    )  # who names them has them


def of(*features: Feature) -> Experiment:
    return Experiment("counted", TaskOf(None, features))


def test_a_feature_that_no_record_has_is_refused(tmp_path: Path) -> None:
    held = {"items": value(1, 2), "label": value(1.0)}
    path = write(tmp_path / "a.tfrecord", [example(held)] * 3)
    message = (
        r"none of the 3 records has 'itmes' \(they have items, label\); did you mean items\? The "
    )
    for feature in (Feature("itmes", "int64", (None,)), Feature("itmes", "int64", default=1)):
        with pytest.raises(UserError, match=message):
            index(of(feature), str(path), 1)
        with pytest.raises(UserError, match=message):
            copy_shuffled(of(feature), [str(path)], str(tmp_path / "copy"), seed=1)
    with pytest.raises(
        UserError, match=r"record 0 .* has no 'itmes' \(it has items, label\); the co"
    ):
        index(of(Feature("itmes", "int64")), str(path), 1)
    assert not (tmp_path / manifest.FILE).exists()


def test_what_records_lack_is_counted_and_refused_where_it_must_be_there(tmp_path: Path) -> None:
    held = [{"label": value(1.0), "age": value(float(k))} for k in range(200)]
    held[100]["age"] = value(float("nan"))
    del held[7]["age"], held[150]["age"]
    path = write(tmp_path / "a.tfrecord", map(example, held))
    message = (
        r"record 7 .* has no 'age' \(it has label\); 2 of 200 \(1\.00%\) records of the file lack "
        r"it: say what they count as, such as tfps\.Feature\('age', 'float32', default=0\.0\), or "
        "leave these records out"
    )
    with pytest.raises(UserError, match=message):
        index(of(Feature("age", "float32")), str(path), 1)
    made, _ = index(of(Feature("age", "float32", default=40.0)), str(path), 1)
    assert made == manifest.read(str(tmp_path))
    assert made.counts == {
        "age": ValueCounts(missing=2, not_finite=1),
        "label": ValueCounts(),
    }
    assert '"counts": {' in (tmp_path / manifest.FILE).read_text()
    del held[7]["label"]
    write(path, map(example, held))
    with pytest.raises(UserError, match=r"has no 'label' .* lack it: leave these records out of t"):
        index(of(), str(path), 1, overwrite=True)


def test_lists_of_examples_are_recognized(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [list_with_context()])
    with pytest.raises(
        UserError, match=r"record 0 .* is an ExampleListWithContext of 2 .* write e"
    ):
        index(of(Feature("query", "int64")), str(path), 1)


def test_the_command_says_what_was_counted(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(
        "import tfps\n"
        "from tests.models import TaskOf\n"
        "def get_config():\n"
        "    features = [tfps.Feature(f'f{k}', 'int64', (None,)) for k in range(25)]\n"
        "    return tfps.Experiment('counted', TaskOf(None, tuple(features)))\n"
    )
    whole = {f"f{k}": value(1) for k in range(25)} | {"label": value(1.0)}
    path = write(tmp_path / "a.tfrecord", map(example, [whole, {"label": value(1.0)}]))
    run = client.run("trainer.index", f"--config={config}", f"--data={path}")
    assert run.returncode == 0, run.stderr
    assert (
        "\n'f19': 1 of 2 (50.00%) records lack it, which is an empty list\n… and 5 more"
        in run.stdout
    )
