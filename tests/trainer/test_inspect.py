import os
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from configs import smoke
from tests.data.example_records import example, list_with_context, value
from tests.loaded import client
from tfps.data import examples
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.feature import Feature
from tfps.data.schema import Schema
from tfps.errors import UserError
from trainer.console import inspection_text
from trainer.datasets.inspection import inspect

TASK = smoke.get_config().task


def record(number: int) -> bytes:
    values = {"numbers": [number, 0.5, 0, 0], "token": number % 20, "label": number % 2}
    return examples.encode(values, TASK.features(), TASK.labels())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with DatasetWriter.open(str(tmp_path / "data"), "few", 3, TASK.schema()) as writer:
        for number in range(40):
            writer.write(number % 2, record(number))
        writer.finish(rejected_rows=2, best_auc=0.75)
    return tmp_path / "data"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return client.run("trainer.inspect", *arguments)


def test_a_good_dataset_is_shown(directory: Path) -> None:
    done = run(str(directory), "--records=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"data      {directory} (dataset few)\n" in done.stdout
    assert "records   40 in 3 shards, 3." in done.stdout
    assert "left out  2 bad rows of the source\n" in done.stdout
    assert "best AUC  0.7500, which the planted signal allows\n" in done.stdout
    assert "feature  token    int64           ids from 0 to 19\n" in done.stdout
    assert "few-00001-of-00003.tfrecord       20  1." in done.stdout
    assert (
        "few-00002-of-00003.tfrecord        0        0 B  none         00000000  good\n"
        in done.stdout
    )
    assert "\nrecord 0\n  label    0\n  numbers  0, 0.5, 0, 0\n  token    0\n" in done.stdout
    assert "all 40 records fit their checksums (" in done.stdout


def test_sorted_records_are_told_of(tmp_path: Path) -> None:
    with DatasetWriter.open(str(tmp_path), "sorted", 20, TASK.schema()) as writer:
        for number in range(400):  # each shard of a token of its own
            writer.write(number // 20, record(number // 20))
        writer.finish()
    done = run(str(tmp_path))
    assert done.returncode == 0
    assert "neighbours are equal in label 'label' by 1.00, 'token' by 1.00 (" in done.stderr
    assert "trainer.index with --shuffle=whole --output=ANOTHER_DIRECTORY writes" in done.stderr
    assert "all 400 records fit their checksums" in done.stdout


def test_damage_is_named(directory: Path) -> None:
    first, second = (directory / f"few-0000{n}-of-00003.tfrecord" for n in range(2))
    size = first.stat().st_size // 20
    content = bytearray(first.read_bytes())
    content[7 * size + 20] ^= 1
    first.write_bytes(content)
    done = run(f"--data={directory}", "--processes=1")
    assert done.returncode == 2
    assert done.stderr == f"error: {first}: record 7 (byte {7 * size}) does not fit its checksum\n"
    assert "1 DAMAGED" in done.stdout
    os.truncate(second, second.stat().st_size - 5)
    assert inspect(str(directory), 1).problems[1:] == [
        f"{first}: record 7 (byte {7 * size}) does not fit its checksum",
        f"{second}: record 19 (byte {19 * size}) is cut off: the file ends after {size - 5} bytes "
        "of it",
    ]


def test_what_differs_from_the_manifest_is_named(directory: Path) -> None:
    manifest = directory / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"vocabulary_size": 20', '"vocabulary_size": 9'))
    [problem, _] = inspect(str(directory), 1).problems
    assert problem.endswith("holds the id 10 in 'token', outside [0, 9), as the manifest says")
    manifest.write_text(text.replace('"records": 20', '"records": 19', 1))
    [problem] = inspect(str(directory), 1).problems
    assert problem.endswith("holds 20 records, but manifest.json says 19")


def test_files_without_a_manifest(directory: Path, tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "part-1"), "GZIP") as writer:
        for number in range(3):
            writer.write(record(number))
        writer.write(tf.train.Example().SerializeToString())
    found = inspect(f"{tmp_path}/part-*", 1)
    assert (found.dataset, found.problems) == (None, [])
    columns = inspection_text.shard_table(found.scans)[1].split()
    assert (columns[1], columns[4], columns[-1]) == ("4", "gzip", "good")
    with pytest.raises(UserError, match="no such file"):
        inspect(str(tmp_path / "absent"), 1)
    done = run()
    assert (done.returncode, done.stderr) == (
        2,
        "error: name the data: python -m trainer.inspect DATA\n",
    )


def test_a_schema_told_by_records() -> None:
    examples_held = [tf.train.Example.FromString(record(n)) for n in range(3)]
    examples_held[1].features.feature["tags"].bytes_list.value.extend([b"a", b"b"])
    assert inspection_text.schema_of(examples_held) == [
        "",
        "what the first 3 records hold",
        "name     dtype    values",
        "label    int64    1",
        "numbers  float32  4",
        "tags     string   2       33.3% of records",
        "token    int64    1",
    ]
    assert inspection_text.schema_of([]) == []


def write(path: Path, *records: bytes) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for each in records:
            writer.write(each)
    return path


def test_names_and_values_are_shown_without_what_a_terminal_acts_on(tmp_path: Path) -> None:
    held = {"\x1b[31m": value(b"\x1b[2J\r\n"), "用户": value(1)}
    done = run(str(write(tmp_path / "a.tfrecord", example(held))))
    assert done.returncode == 0, done.stderr
    assert "\n  '\\x1b[31m'  '\\x1b[2J\\r\\n'\n  用户" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


def test_lists_of_examples_are_named(tmp_path: Path) -> None:
    done = run(str(write(tmp_path / "a.tfrecord", list_with_context())))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/a.tfrecord: record 0 is an ExampleListWith")


def test_what_records_lack_is_said_of_all_of_them(tmp_path: Path) -> None:
    records = [example({"x": value(1)})] * 3000 + [example({"x": value(2.0)}), example({})]
    done = run(str(write(tmp_path / "a.tfrecord", *records)))
    assert done.returncode == 0, done.stderr
    assert (
        "'x': 1 of 3,002 (0.03%) records lack it, which is an empty list, 1 of 3,002 (0.03%) "
        "records hold values of another type or number\n"
    ) in done.stdout


def test_values_behind_the_first_records_are_held_against_the_manifest(tmp_path: Path) -> None:
    schema = Schema((Feature("x", "int64", (), 5), Feature("never", "int64", (None,))), ())
    with DatasetWriter.open(str(tmp_path), "few", 1, schema) as writer:
        for number in range(2000):
            writer.write(0, example({"x": value(0 if number < 1500 else 5)}))
        writer.finish()
    assert inspect(str(tmp_path), 1).problems == [
        "'x': 500 of 2,000 (25.00%) records hold an id outside [0, 5)",
        "'never': 2,000 of 2,000 (100.00%) records lack it, which is an empty list",
    ]
