import gzip
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from configs import census, criteo, smoke
from tests.loaded import client
from tests.trainer.one_dataset import prepare
from tfps.data import examples, manifest, schema
from tfps.data.examples import ValueCounts
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.row_blocks import BLOCK_BYTES
from tfps.errors import UserError
from trainer.datasets.indexing import index
from trainer.datasets.row_encoding import ConfiguredExperiment

SMOKE = smoke.get_config()


def rows(count: int, start: int = 0) -> str:
    return "".join(f"{i},0.5,-1,2e0,{i % 20},{i % 2}\n" for i in range(start, start + count))


def write(tmp_path: Path, text: str, name: str = "rows.csv") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def records(
    dataset: Manifest, shard: int, labels: tuple[Feature, ...] = SMOKE.task.labels()
) -> list[float]:
    path = dataset.path_of(dataset.shards[shard])
    batches = tf.data.TFRecordDataset(path).batch(1000)
    inputs, _ = examples.parse(next(iter(batches)), SMOKE.task.features(), labels)
    return inputs["numbers"][:, 0].numpy().tolist()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return client.run("trainer.prepare", *arguments)


def test_rows_are_dealt_to_the_shards_in_turn(tmp_path: Path) -> None:
    inputs = [write(tmp_path, rows(4)), write(tmp_path, rows(3, start=4) + "\n", "more.csv")]
    dataset = prepare(smoke.get_config, inputs, str(tmp_path / "out"), shards=3)
    assert [records(dataset, shard) for shard in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert dataset == manifest.read(str(tmp_path / "out"))
    schema.check(dataset, SMOKE.task.schema(), "--data.train")
    assert dataset.shards[0].file == "smoke-00000-of-00003.tfrecord"


def test_rows_without_labels(tmp_path: Path) -> None:
    text = "".join(line.rpartition(",")[0] + "\n" for line in rows(5).splitlines())
    unlabelled = ConfiguredExperiment("configs/smoke.py", without_labels=True)
    made = prepare(unlabelled, [write(tmp_path, text)], str(tmp_path / "out"), shards=1)
    assert (made.records, made.labels) == (5, [])
    assert records(made, 0, labels=()) == [0, 1, 2, 3, 4]
    path = str(tmp_path / "out" / made.shards[0].file)
    (tmp_path / "out" / manifest.FILE).unlink()
    with pytest.raises(UserError, match="label"):
        index(SMOKE, path, processes=1)
    indexed = index(unlabelled(), path, processes=1)[0]
    assert (indexed.records, indexed.labels) == (5, [])


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, rows(50))
    first = prepare(smoke.get_config, [path], str(tmp_path / "a"), shards=2, name="same")
    second = prepare(smoke.get_config, [path], str(tmp_path / "b"), shards=2, name="same")
    assert first.shards == second.shards


HEADER = "token,label,number_4,spare,number_3,number_2,number_1\n"


@pytest.mark.slow
def test_columns_are_found_by_the_names_of_a_header(tmp_path: Path) -> None:
    turned = "".join(f"{i % 20},{i % 2},2e0,x,-1,0.5,{i}\n" for i in range(4, 7))
    inputs = [
        write(tmp_path, rows(4)),
        write(tmp_path, "\ufeff" + HEADER + turned, "turned.csv"),
        write(tmp_path, "\ufeff" + rows(2, start=7).replace("\n", "\r\n"), "marked.csv"),
    ]
    with_header = prepare(smoke.get_config, inputs, str(tmp_path / "a"), 1, processes=2)
    by_place = prepare(smoke.get_config, [write(tmp_path, rows(9))], str(tmp_path / "b"), 1)
    assert with_header.shards == by_place.shards


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            HEADER.replace("number_2", "Number_2"),
            r"line 1 is a header without the column 'number_2' \(it has 'token', .*'Number_2'",
        ),
        (HEADER.replace("spare", "token"), "line 1: the header names the column 'token' twice"),
        (
            "Kennung,Klick,a,b,c,d\n",
            r"line 1 column number_1: 'Kennung' is not a number \(a header would have the names "
            r"of rows\(\): number_1, .*label\); fix the row",
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, header: str, message: str
) -> None:
    inputs = [write(tmp_path, rows(4)), write(tmp_path, header + rows(4), "more.csv")]
    with pytest.raises(UserError, match=rf"more\.csv {message}"):
        prepare(smoke.get_config, inputs, str(tmp_path / "out"), shards=1)
    assert not list(tmp_path.glob("out/*"))


def test_processes_write_what_one_does(tmp_path: Path) -> None:
    text = rows(20_000) + "1,1,1,x,1,0\n" + '1,"1",1,1,1,"0"\n' + rows(20_000) + "1,1,1,1,20,0\n"
    path = write(tmp_path, text)
    assert len(text) > 3 * BLOCK_BYTES
    made = [
        prepare(
            smoke.get_config,
            [path, path],
            str(tmp_path / str(processes)),
            shards=3,
            max_bad_rows=4,
            processes=processes,
        )
        for processes in (1, 2)
    ]
    assert made[0].shards == made[1].shards
    assert made[0].index == made[1].index
    assert (made[0].records, made[0].rejected_rows) == (80_002, 4)
    assert records(made[0], 1)[:3] == [1, 4, 7]
    with pytest.raises(UserError, match="line 40003: feature 'token': an id in"):
        prepare(smoke.get_config, [path], str(tmp_path / "no"), 1, max_bad_rows=1)


def test_a_whole_shuffle_depends_on_the_seed_alone(tmp_path: Path) -> None:
    path = write(tmp_path, rows(7000) + "x\n")
    assert Path(path).stat().st_size < BLOCK_BYTES

    def shuffled(name: str, seed: int) -> Manifest:
        made = str(tmp_path / name)
        return prepare(smoke.get_config, [path], made, 3, max_bad_rows=1, shuffle_seed=seed)

    first = shuffled("a", 0)
    assert [shard.records for shard in first.shards] == [2334, 2333, 2333]
    assert first == manifest.read(str(tmp_path / "a"))
    found = [number for shard in range(3) for number in records(first, shard)]
    assert len(found) == 3000  # the first of each shard
    assert len(set(found)) == 3000
    assert abs(np.mean(found) - 3500) < 200
    assert shuffled("b", 0).shards == first.shards
    assert shuffled("c", 1).shards != first.shards


def test_sorted_rows_are_told_of_and_shuffled(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"{i},0.5,-1,2e0,{i // 450},{i % 2}\n" for i in range(9000)))
    given = ["--config=configs/smoke.py", f"--input={path}", "--shards=1"]
    done = run(*given, f"--output={tmp_path / 'sorted'}")
    assert done.returncode == 0
    told = "the records are sorted, or come in long runs: neighbours are equal in 'token' by "
    assert done.stderr.startswith(f"warning: {tmp_path / 'sorted'}: {told}")
    assert "Leave it if this is the order of time" in done.stderr
    assert done.stderr.endswith("--shuffle=whole writes the records in a drawn order\n")
    done = run(*given, f"--output={tmp_path / 'shuffled'}", "--shuffle=whole")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bad_row_stops_it_and_leaves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, rows(3) + "1,1,1,x,1,0\n" + rows(3))
    with pytest.raises(UserError) as caught:
        prepare(smoke.get_config, [path], str(tmp_path / "out"), shards=2)
    assert str(caught.value).startswith(f"{path} line 4 column number_4: 'x' is not a number; fix")
    assert "--max_bad_rows=1" in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_bad_rows_that_are_allowed_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "x\n" + rows(3) + "1,1,1,1,20,0\n" + rows(1, start=3))
    dataset = prepare(smoke.get_config, [path], str(tmp_path / "out"), shards=1, max_bad_rows=2)
    assert (dataset.rejected_rows, dataset.records) == (2, 4)
    assert records(dataset, 0) == [0, 1, 2, 3]
    with pytest.raises(UserError, match=r"line 5: feature 'token': an id in \[20\] lies outside"):
        prepare(smoke.get_config, [path], str(tmp_path / "less"), shards=1, max_bad_rows=1)


def test_no_rows_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.csv: no row could be used"):
        prepare(smoke.get_config, [write(tmp_path, "\n\n")], str(tmp_path / "out"), shards=1)


def test_census_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, "
        "Male, 2174, 0, 40, United-States, <=50K\n"
        "17, ?, 77516, Doctorate, 13, Divorced, ?, Husband, Black, Female, 0, 1902, 99, ?, >50K.\n"
        "\n",
    )
    experiment = census.get_config()
    dataset = prepare(census.get_config, [path], str(tmp_path / "out"), shards=1)
    batch = next(iter(tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(9)))
    inputs, labels = examples.parse(batch, experiment.task.features(), experiment.task.labels())
    assert labels["income"].numpy().tolist() == [0, 1]
    assert inputs["workclass"].numpy().tolist() == [6, 0]
    assert inputs["education"].numpy().tolist() == [13, 16]
    assert inputs["native_country"].numpy().tolist() == [1, 0]
    assert inputs["age_bucket"].numpy().tolist() == [7, 0]
    np.testing.assert_allclose(inputs["capital_gain"], [np.log1p(2174) / 10, 0], rtol=1e-6)
    bad = write(tmp_path, "|1x3 Cross validator\n", "remark.csv")
    with pytest.raises(UserError, match="line 1: 1 columns, but the format has 15"):
        prepare(census.get_config, [bad], str(tmp_path / "bad"), shards=1)


def test_criteo_rows_in_gzip(tmp_path: Path) -> None:
    path = tmp_path / "day_0.gz"
    first = ["1", "0", "-2", "", "7", *[""] * 9, "68fd1e64", "00000000", *[""] * 24]
    path.write_bytes(gzip.compress("\t".join(first).encode() + b"\n"))
    experiment = criteo.get_config()
    dataset = prepare(criteo.get_config, [str(path)], str(tmp_path / "out"), shards=1)
    batch = next(iter(tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(9)))
    inputs, labels = examples.parse(batch, experiment.task.features(), experiment.task.labels())
    assert labels["label"].numpy().tolist() == [1]
    np.testing.assert_allclose(inputs["integers"][0, :4], [0, 0, 0, np.log(8)], rtol=1e-6)
    ids = inputs["categoricals"][0].numpy().tolist()
    assert ids == [int("68fd1e64", 16) % 19_999 + 1, 1, *[0] * 24]


def test_the_command_prints_a_summary(tmp_path: Path) -> None:
    path = write(tmp_path, "bad\n" + rows(2))
    out = str(tmp_path / "out")
    done = run(
        "--config=configs/smoke.py",
        f"--input={path}",
        f"--output={out}",
        "--shards=3",
        "--max_bad_rows=1",
        "--name=few",
        "--task.vocabulary=50",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("few: 2 records in 3 shards, 1 of them empty")
    assert "1 bad rows left out" in done.stdout
    names = "number_1, number_2, number_3, number_4, token, label"
    assert done.stderr == (
        f"left out: {path} line 1: 1 columns, but the format has 6 (a header would have the names "
        f"of rows(): {names})\n"
    )
    assert manifest.read(out).features[1]["vocabulary_size"] == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--shards": "0"}, "shards"),
        ({"--input": None}, "--input"),
        ({"--input": "absent.csv"}, "absent.csv: no such file"),
    ],
)
def test_bad_flags_end_with_one_message(
    tmp_path: Path, change: dict[str, str | None], message: str
) -> None:
    given: dict[str, str | None] = {
        "--config": "configs/smoke.py",
        "--input": write(tmp_path, rows(2)),
        "--output": str(tmp_path / "out"),
        "--shards": "1",
    }
    given |= change
    done = run(*(f"{flag}={value}" for flag, value in given.items() if value is not None))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_directories_and_globs_are_taken_without_hidden_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for part in range(3):
        write(data, rows(2, start=2 * part), f"part-{part}")
    for other in ("_SUCCESS", ".part-0.crc"):
        (data / other).write_bytes(b"crc\0")
    for given in (f"{data}", f"{data}/*", f"{data}/part-[01],{data}/part-2"):
        flags = [f"--input={given}", f"--output={tmp_path / 'out'}", "--shards=1", "--overwrite"]
        done = run("--config=configs/smoke.py", *flags)
        assert (done.returncode, done.stderr) == (0, "")
        assert records(manifest.read(str(tmp_path / "out")), 0) == [0, 1, 2, 3, 4, 5]
    done = run(
        "--config=configs/smoke.py",
        f"--input={tmp_path}",
        f"--output={tmp_path}/out2",
        "--shards=1",
    )
    assert done.returncode == 2
    assert (
        f"--input={tmp_path} holds directories, such as data, but no files; name the" in done.stderr
    )


def test_what_rows_hold_is_counted(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "import tfps\n"
        "from tests.models import TaskOf\n"
        "def odd(text):\n"
        "    return float('nan') if text == '?' else float(text)\n"
        "class T(TaskOf):\n"
        "    def rows(self):\n"
        "        fields = {name: tfps.Field((name,), odd) for name in ('x', 'label')}\n"
        "        fields['tags'] = tfps.Field(('tags',), int, '|')\n"
        "        return tfps.RowFormat(('x', 'tags', 'label'), ',', fields)\n"
        "def get_config():\n"
        "    tags = tfps.Feature('tags', 'int64', (None,), 5)\n"
        "    return tfps.Experiment('t', T(None, (tfps.Feature('x', 'float32'), tags)))\n"
    )
    # The rows of the second file are read one by one.
    good = write(tmp_path, "1,0|4,0\n?,,1\n2,1,0\n")
    bad = write(tmp_path, "1,9,0\n?,,1\n", "bad.csv")
    flags = [f"--input={good},{bad}", f"--output={tmp_path / 'out'}", "--shards=1"]
    done = run(f"--config={tmp_path / 'config.py'}", "--max_bad_rows=1", *flags)
    assert done.returncode == 0, done.stderr
    assert "\n'x': 2 of 4 (50.00%) records hold a NaN or an infinity\n" in done.stdout
    assert "\n'tags': 2 of 4 (50.00%) records have an empty list\n" in done.stdout
    counts = manifest.read(str(tmp_path / "out")).counts
    assert counts["x"] == ValueCounts(not_finite=2)
    assert counts["tags"] == ValueCounts(empty=2)


def test_a_cell_is_shown_without_what_a_terminal_acts_on(tmp_path: Path) -> None:
    path = write(tmp_path, f"\x1b[2J{'x' * 90},0.5,-1,2e0,1,1\n")
    done = run(
        "--config=configs/smoke.py", f"--input={path}", f"--output={tmp_path}/out", "--shards=1"
    )
    assert done.returncode == 2
    assert f": '\\x1b[2J{'x' * 56}'… is not a number" in done.stderr
