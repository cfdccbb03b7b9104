"""`trainer.predict`: Parquet in and out, and what is kept of the input."""

import csv
import gzip
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests.prediction_model import check, drawn, expected, export, read, run, write_records
from tfps.data.converters import integer, number
from tfps.data.row_format import Field, RowFormat
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> ExportedModel:
    return ExportedModel.load(str(export(tmp_path_factory.mktemp("model") / "export")))


def table(records: list[dict], **others):
    """Columns as `trainer.predict` wants them without a config, and others."""
    return arrow.table(
        {
            "ids": [record["ids"] for record in records],
            "clicked": [record["clicked"] for record in records],
            "town": [record["town"].decode() for record in records],
            "age": arrow.array([record["age"] for record in records], arrow.float32()),
            **others,
        }
    )


def write_text(path: pathlib.Path, records: list[dict], **others) -> pathlib.Path:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["town", "clicked", "ids_0", "ids_1", *others, "age"])
        for index, record in enumerate(records):
            kept = [values[index] for values in others.values()]
            town = record["town"].decode()
            writer.writerow([town, record["clicked"], *record["ids"], *kept, record["age"]])
    return path


# Parquet in.


def test_the_same_records_in_any_files_are_predicted_in_the_same_batches(tmp_path):
    by_batch = ExportedModel.load(str(export(tmp_path / "export", by_batch=True)))
    records = drawn(50)
    sources = [
        write_records(tmp_path / "a.tfrecord", records),
        write_text(tmp_path / "a.csv", records),
        write_text(tmp_path / "a.csv.gz", records),
        tmp_path / "whole.parquet",
        tmp_path / "several",
    ]
    parquet.write_table(table(records), sources[3], row_group_size=7)
    sources[4].mkdir()
    for first, end, rows in ((0, 3, 2), (3, 30, 5), (30, 50, 100)):
        path = sources[4] / f"part-{first:02d}.snappy.parquet"
        parquet.write_table(table(records[first:end]), path, row_group_size=rows)
    (sources[4] / "_SUCCESS").touch()
    outputs = []
    for index, source in enumerate(sources):
        output = tmp_path / f"out-{index}.csv"
        assert run(by_batch, source, output, batch_size=16).records == 50
        outputs.append(output.read_bytes())
    assert outputs == outputs[:1] * 5
    sizes = np.repeat(np.float32([16, 2]), [48, 2])
    found = read(tmp_path / "out-0.csv")[1][:, 1].astype(np.float32)
    assert found.tobytes() == (expected(records) * sizes).tobytes()


def test_parquet_that_pandas_wrote(model, tmp_path):
    pandas = pytest.importorskip("pandas")
    records = drawn(20)
    frame = pandas.DataFrame(
        {
            "town": pandas.Categorical([record["town"].decode() for record in records]),
            "ids_1": np.array([record["ids"][1] for record in records], np.int8),
            "ids_0": [float(record["ids"][0]) for record in records],
            "clicked": [record["clicked"] == 1 for record in records],
            "age": [record["age"] for record in records],
            "seen": pandas.date_range("2026-01-01", periods=20, tz="UTC"),
        },
        index=pandas.Index([row * row for row in range(20)], name="visit"),
    )
    frame.loc[9, "seen"] = pandas.NaT
    frame.to_parquet(tmp_path / "a.parquet")
    keep = ["visit", "seen", "town"]
    assert run(model, tmp_path / "a.parquet", tmp_path / "out.parquet", keep=keep).records == 20
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names == [*keep, "label", "prediction"]
    written = parquet.read_table(tmp_path / "a.parquet")
    for name in keep:
        assert found[name].type == written[name].type
        assert found[name].to_pylist() == written[name].to_pylist()
    assert found["seen"].null_count == 1
    assert found["label"].to_pylist() == [record["clicked"] for record in records]
    assert found["prediction"].to_numpy().tobytes() == expected(records).tobytes()


def test_parquet_with_the_columns_of_a_config(model, tmp_path):
    rows = RowFormat(
        ("clicked", "age", "first", "second", "town"),
        ";",
        {
            "clicked": Field(("clicked",), integer),
            "age": Field(("age",), number),
            "ids": Field(("first", "second"), integer),
            "town": Field(("town",), str.encode),
        },
    )
    records = drawn(9)
    columns = {
        "second": [record["ids"][1] for record in records],
        "first": [record["ids"][0] for record in records],
        "town": arrow.array([record["town"].decode() for record in records]).dictionary_encode(),
        "age": [record["age"] for record in records],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "rows")
    run(model, tmp_path / "rows", tmp_path / "a.csv", row_format=rows)
    check(tmp_path / "a.csv", records, labelled=False)
    columns["clicked"] = [record["clicked"] for record in records]
    parquet.write_table(arrow.table(columns), tmp_path / "rows")
    run(model, tmp_path / "rows", tmp_path / "b.csv", row_format=rows)
    check(tmp_path / "b.csv", records)


def test_bad_rows_of_parquet_are_named_and_left_out_with_what_is_kept(model, tmp_path):
    records = drawn(6)
    ids = [record["ids"] for record in records]
    ids[1], ids[3], ids[4] = [1], [1, 10], None
    data = table(records, ids=ids, visit=[*"abcdef"], clicked=[1, 0, 1, 0, 1, None])
    parquet.write_table(data, tmp_path / "a.parquet")
    message = r"a\.parquet row 2: feature 'ids': 1 values, but its shape \(2,\) holds 2; fix"
    with pytest.raises(UserError, match=message):
        run(model, tmp_path / "a.parquet", tmp_path / "out.parquet")
    with pytest.raises(UserError, match=r"row 6 column clicked: the cell is empty; fix"):
        run(model, tmp_path / "a.parquet", tmp_path / "out.parquet", max_bad_rows=3)
    assert not list(tmp_path.glob("out*"))
    result = run(
        model, tmp_path / "a.parquet", tmp_path / "out.csv", max_bad_rows=4, keep=["visit"]
    )
    assert (result.records, result.bad_rows) == (2, 4)
    assert read(tmp_path / "out.csv")[1][:, 0].tolist() == ["a", "c"]


# Parquet out.


def test_vectors_are_lists_in_parquet(tmp_path):
    wide = export(tmp_path / "export", width=3)
    records = drawn(10)
    data = write_records(tmp_path / "a.tfrecord", records)
    run(wide, data, tmp_path / "out.parquet", keep=["ids", "town"])
    found = parquet.read_table(tmp_path / "out.parquet")
    assert [str(each) for each in found.schema.types] == [
        "list<element: int64>",
        "string",
        "int64",
        "list<element: float>",
    ]
    assert found["ids"].to_pylist() == [record["ids"] for record in records]
    assert found["town"].to_pylist() == [record["town"].decode() for record in records]
    scores = np.array(found["prediction"].to_pylist(), np.float32)
    assert scores[:, 0].tobytes() == expected(records).tobytes()
    run(wide, data, tmp_path / "out.csv", keep=["ids", "town"])
    header, rows = read(tmp_path / "out.csv")
    scored = [f"prediction_{index}" for index in range(3)]
    assert header == ["ids_0", "ids_1", "town", "label", *scored]
    assert rows[:, 4:].astype(np.float32).tobytes() == scores.tobytes()


def test_a_run_that_fails_leaves_no_parquet_behind(model, tmp_path):
    first = write_records(tmp_path / "a.tfrecord", drawn(20))
    (tmp_path / "b.tfrecord").write_bytes(first.read_bytes()[:-9])
    with pytest.raises(UserError, match="record 20 is corrupt"):
        run(model, tmp_path / "*.tfrecord", tmp_path / "out.parquet")
    assert not list(tmp_path.glob("out*"))


# What is kept.


def test_columns_of_text_are_kept_as_they_stand(model, tmp_path):
    records = drawn(5)
    note = ['say "hi"', "", "a,b", "007", "K\u00f6ln"]
    data = write_text(tmp_path / "a.csv", records, visit=[5, 4, 3, 2, 1], note=note)
    run(model, data, tmp_path / "out.csv", keep=["note", "ids_0", "visit"])
    header, rows = read(tmp_path / "out.csv")
    assert header == ["note", "ids_0", "visit", "label", "prediction"]
    assert rows[:, 0].tolist() == note
    assert rows[:, 1].tolist() == [str(record["ids"][0]) for record in records]
    assert rows[:, 2].tolist() == ["5", "4", "3", "2", "1"]
    assert rows[:, 4].astype(np.float32).tobytes() == expected(records).tobytes()
    run(model, data, tmp_path / "out.parquet", keep=["visit", "note"])
    assert parquet.read_table(tmp_path / "out.parquet")["visit"].to_pylist() == [*"54321"]


def test_nulls_are_empty_cells_of_text(model, tmp_path):
    others = {
        "name": ["x", None, "", "y"],
        "paid": [1.5, 2.0, None, float("nan")],
        "at": arrow.array([0, None, 10**9, 1], arrow.timestamp("s")),
        "member": [True, None, False, True],
    }
    parquet.write_table(table(drawn(4), **others), tmp_path / "a.parquet")
    run(model, tmp_path / "a.parquet", tmp_path / "out.csv", keep=list(others))
    assert read(tmp_path / "out.csv")[1][:, :4].tolist() == [
        ["x", "1.5", "1970-01-01 00:00:00.000", "1"],
        ["", "2", "", ""],
        ["", "", "2001-09-09 01:46:40.000", "0"],
        ["y", "nan", "1970-01-01 00:00:01.000", "1"],
    ]


def test_features_that_the_model_does_not_have_are_kept(model, tmp_path):
    records = drawn(3)
    path = tmp_path / "a.tfrecord"
    visits, notes, seen = [7, 8, None], [b"x", None, b"z"], [[1, 2], [], [3]]
    first = write_records(tmp_path / "plain.tfrecord", records)
    plain = tf.data.TFRecordDataset(str(first)).as_numpy_iterator()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record, visit, note, times in zip(plain, visits, notes, seen, strict=True):
            example = tf.train.Example.FromString(record)
            slots = example.features.feature
            slots["visit"].int64_list.value.extend([visit] if visit else [])
            slots["note"].bytes_list.value.extend([note] if note else [])
            slots["seen"].float_list.value.extend(times)
            writer.write(example.SerializeToString())
    keep = ["visit", "note", "seen", "clicked"]
    run(model, path, tmp_path / "out.parquet", keep=keep)
    found = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    clicked = [record["clicked"] for record in records]
    assert [found[name] for name in keep] == [visits, ["x", None, "z"], seen, clicked]
    run(model, path, tmp_path / "out.csv", keep=keep[:2])
    assert read(tmp_path / "out.csv")[1][:, :2].tolist() == [["7", "x"], ["8", ""], ["", "z"]]
    with pytest.raises(UserError, match="--keep=seen: a cell of a CSV file holds no list; "):
        run(model, path, tmp_path / "lists.csv", keep=["seen"])
    assert not list(tmp_path.glob("lists*"))


@pytest.mark.parametrize(
    ("name", "keep", "message"),
    [
        ("a.csv", ["x", "y"], r"a\.csv line 1: there is no column 'y', which --keep names; .*'x'"),
        ("a.parquet", ["y"], r"a\.parquet: there is no column 'y', which --keep names"),
        ("a.tfrecord", ["y"], r"record 1 has no 'y', which --keep names \(it has age, clicked, "),
        ("a.csv", ["x", "x"], "--keep names 'x' twice"),
        ("a.parquet", ["label"], "--keep=label: the output has a column 'label' of its own"),
    ],
)
def test_what_cannot_be_kept_is_refused(model, tmp_path, name, keep, message):
    records = drawn(2)
    write_text(tmp_path / "a.csv", records, x=[1, 2])
    write_records(tmp_path / "a.tfrecord", records)
    parquet.write_table(table(records, label=[1, 2]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=message):
        run(model, tmp_path / name, tmp_path / "out.csv", keep=keep)
    assert not list(tmp_path.glob("out*"))


def test_parquet_whose_columns_do_not_fit_is_refused(model, tmp_path):
    def refused(message: str, written) -> None:
        parquet.write_table(written, tmp_path / "a.parquet")
        with pytest.raises(UserError, match=message):
            run(model, tmp_path / "a.parquet", tmp_path / "out.csv", keep=["x"])

    good = table(drawn(2), x=[1, 2])
    refused(r"no column 'town' \(there are 'ids', 'clicked', 'age', 'x'\)", good.drop(["town"]))
    refused("two columns of the name 'x'", good.append_column("x", good["x"]))
    refused(r"column town is of type struct", good.set_column(2, "town", [[{"a": 1}] * 2]))
    (tmp_path / "b.parquet").write_text("no")
    with pytest.raises(UserError, match=r"b\.parquet is no Parquet file"):
        run(model, tmp_path / "b.parquet", tmp_path / "out.csv", data_format="parquet")


def test_later_files_with_kept_columns_of_other_types(model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    parquet.write_table(table(drawn(2), x=[1, 2]), data / "a.parquet")
    parquet.write_table(table(drawn(2), x=arrow.array([3, 4], arrow.int8())), data / "b.parquet")
    run(model, data, tmp_path / "out.parquet", keep=["x"])
    assert parquet.read_table(tmp_path / "out.parquet")["x"].to_pylist() == [1, 2, 3, 4]
    parquet.write_table(table(drawn(2), x=["three", "4"]), data / "b.parquet")
    with pytest.raises(UserError, match="--keep: a column is of another type in a later file"):
        run(model, data, tmp_path / "no.parquet", keep=["x"])


def test_a_kept_label_that_a_later_file_lacks(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", drawn(2))
    write_records(tmp_path / "b.tfrecord", drawn(2), labels=())
    with pytest.raises(UserError, match=r"b\.tfrecord record 1 has no label, but"):
        run(model, tmp_path / "*.tfrecord", tmp_path / "out.parquet", keep=["clicked"])


@pytest.mark.parametrize("kind", ["records", "text", "parquet"])
def test_a_directory_is_predicted_as_another_program_wrote_it(model, tmp_path, kind):
    write_file = {
        "records": write_records,
        "text": write_text,
        "parquet": lambda path, some: parquet.write_table(table(some), path),
    }[kind]
    records, data = drawn(5), tmp_path / "data"
    data.mkdir()
    if kind == "records":
        (data / "part-00000").touch()
    write_file(data / "part-00001", records[:2])
    write_file(data / "part-00002", records[2:])
    for other in ("_SUCCESS", ".part-00001.crc"):
        (data / other).write_bytes(b"crc\0")
    run(model, data, tmp_path / "out.csv")
    check(tmp_path / "out.csv", records)
