"""`trainer.predict`, on a SavedModel made by hand."""

import csv
import gzip
import pathlib

import numpy as np
import pytest

from tests.prediction_model import (
    CONFIG,
    FEATURES,
    LABEL,
    PredictionTask,
    check,
    command,
    drawn,
    expected,
    export,
    read,
    run,
    write_records,
)
from tfps.data import dataset_writer, examples
from tfps.errors import UserError
from tfps.evaluation.accumulators import BoundedAuc
from tfps.experiment import metrics, overrides
from trainer.datasets.batched_prediction import PredictionAucs
from trainer.datasets.prediction import Predictions


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return export(tmp_path_factory.mktemp("model") / "export")


# Every kind of data.


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a-00000-of-00001.tfrecord"])
def test_one_tfrecord_file(model, tmp_path, name):
    records = drawn(10)
    data = write_records(tmp_path / name, records)
    result = run(model, data, tmp_path / "out.csv")
    check(tmp_path / "out.csv", records)
    labels = [record["clicked"] for record in records]
    assert result == Predictions(
        10, 0, {"": BoundedAuc(metrics.auc(labels, expected(records)), 0.0)}, ""
    )


def test_a_glob_is_read_in_the_order_of_names(model, tmp_path):
    first, second = drawn(5, seed=1), drawn(3, seed=2)
    write_records(tmp_path / "b.tfrecord", second)
    write_records(tmp_path / "a.tfrecord", first)
    assert run(model, tmp_path / "*.tfrecord", tmp_path / "out.csv").records == 8
    check(tmp_path / "out.csv", [*first, *second])


def test_records_without_labels(model, tmp_path):
    records = drawn(6)
    data = write_records(tmp_path / "a.tfrecord", records, labels=())
    result = run(model, data, tmp_path / "out.csv")
    check(tmp_path / "out.csv", records, labelled=False)
    assert (result.aucs, result.without_auc) == ({}, "not known without labels")


def test_a_dataset(model, tmp_path):
    records = drawn(7)
    with dataset_writer.DatasetWriter.open(
        str(tmp_path / "data"), "towns", 3, PredictionTask().schema()
    ) as writer:
        for index, record in enumerate(records):
            writer.write(index // 4, examples.encode(record, FEATURES, [LABEL]))
        writer.finish()
    run(model, tmp_path / "data", tmp_path / "out.csv")
    check(tmp_path / "out.csv", records)


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv.gz", ","), ("a.tsv", "\t")]
)
@pytest.mark.parametrize("labelled", [True, False])
def test_rows_under_a_header(model, tmp_path, name, delimiter, labelled):
    records = drawn(9)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["town", *["clicked"] * labelled, "ids_0", "ids_1", "age"])
        for record in records:
            label = [record["clicked"]] * labelled
            writer.writerow([record["town"].decode(), *label, *record["ids"], record["age"]])
    run(model, tmp_path / name, tmp_path / "out.csv")
    check(tmp_path / "out.csv", records, labelled)


@pytest.mark.parametrize("labelled", [True, False])
def test_rows_of_a_config_through_the_command_line(model, tmp_path, labelled):
    config = tmp_path / "towns.py"
    config.write_text(CONFIG)
    records = drawn(50)
    lines = [
        ";".join(
            [
                *[str(record["clicked"])] * labelled,
                str(record["age"]),
                *map(str, record["ids"]),
                "x",
                record["town"].decode(),
            ]
        )
        for record in records
    ]
    (tmp_path / "rows.txt").write_text("\n".join(lines) + "\n")
    result = command(
        f"--model={model}",
        f"--data={tmp_path}/rows.txt",
        f"--output={tmp_path}/out.csv",
        f"--config={config}",
        "--task.delimiter=;",
        "--batch_size=16",
    )
    assert (result.returncode, result.stderr) == (0, "")
    check(tmp_path / "out.csv", records, labelled)
    first, auc, where = result.stdout.splitlines()
    assert first.startswith("50 records predicted, ")
    assert where == f"predictions: {tmp_path}/out.csv"
    labels = [record["clicked"] for record in records]
    known = f"{metrics.auc(labels, expected(records)):.7f}"
    assert auc == f"AUC: {known if labelled else 'not known without labels'}"


@pytest.mark.parametrize("labelled", [True, False])
def test_a_header_names_the_columns_of_a_config(model, tmp_path, labelled):
    records = drawn(50)
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter="|")
        writer.writerow(["town", *["clicked"] * labelled, "more", "second", "first", "age"])
        for record in records:
            label, [first, second] = [record["clicked"]] * labelled, record["ids"]
            town = record["town"].decode()
            writer.writerow([town, *label, "m", second, first, record["age"]])
    rows = overrides.load(write_config(tmp_path)).task.rows()
    run(model, tmp_path / "rows.csv", tmp_path / "out.csv", row_format=rows, keep=["more"])
    kept = (tmp_path / "out.csv").read_text().replace("\nm,", "\n").replace("more,", "", 1)
    (tmp_path / "out.csv").write_text(kept)
    check(tmp_path / "out.csv", records, labelled)


def write_config(tmp_path):
    path = tmp_path / "towns.py"
    path.write_text(CONFIG)
    return str(path)


def test_a_header_that_lacks_a_column_of_a_config_is_refused(model, tmp_path):
    rows = overrides.load(write_config(tmp_path)).task.rows()
    (tmp_path / "rows.csv").write_text("town|first|second|years\nUlm|1|2|3\n")
    with pytest.raises(UserError, match=r"line 1 is a header without the column 'age' \(it has "):
        run(model, tmp_path / "rows.csv", tmp_path / "out.csv", row_format=rows)
    assert not (tmp_path / "out.csv").exists()


def test_a_mistake_is_one_message_and_exit_code_2(tmp_path):
    result = command(
        f"--model={tmp_path}/none", f"--data={tmp_path}", f"--output={tmp_path}/out.csv"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: --model={tmp_path}/none does not exist; name the export directory of a trained "
        "job\n"
    )


def test_a_config_of_another_vocabulary(model, tmp_path):
    config = tmp_path / "towns.py"
    config.write_text(CONFIG.replace('"int64", (2,), 10', '"int64", (2,), tuple("abcdefghi")'))
    result = command(
        f"--model={model}",
        f"--data={tmp_path}/rows.txt",
        f"--output={tmp_path}/out.csv",
        f"--config={config}",
    )
    assert result.returncode == 2
    message = f"error: --config={config} holds other records than --model={model}: 'ids' has "
    assert result.stderr.startswith(message + "vocabulary_crc32 ")


# The output.


def test_each_label_of_0_and_1_has_the_auc_of_its_prediction():
    drawn_labels = np.random.default_rng(1).integers(0, 2, 400)
    labels = {"sold": drawn_labels, "days": np.arange(400.0)}
    scores = drawn_labels + np.random.default_rng(2).normal(size=400)
    aucs = PredictionAucs()
    for part in (slice(0, 100), slice(100, 400)):
        predictions = {"sold": scores[part].astype("f4"), "days": np.zeros(400, "f4")[part]}
        aucs.add({name: values[part] for name, values in labels.items()}, predictions)
    found, reason = aucs.result()
    assert {name: auc.value for name, auc in found.items()} == {
        "sold": pytest.approx(metrics.auc(drawn_labels, scores.astype("f4")), abs=1e-9)
    }
    assert reason == ""


def test_labels_without_a_prediction_of_their_name_have_no_auc():
    aucs = PredictionAucs()
    aucs.add({"sold": np.array([0, 1]), "days": np.array([0, 1])}, {"score": np.zeros(2, "f4")})
    assert aucs.result() == ({}, "not defined: no prediction has the name of one of several labels")


def test_vectors_have_numbered_columns(tmp_path):
    wide = export(tmp_path / "export", width=3)
    data = write_records(tmp_path / "a.tfrecord", drawn(3))
    result = run(wide, data, tmp_path / "out.csv")
    header, rows = read(tmp_path / "out.csv")
    assert header == ["label", "prediction_0", "prediction_1", "prediction_2"]
    np.testing.assert_allclose(rows[:, 2].astype(float), 2 * rows[:, 1].astype(float), rtol=1e-6)
    assert result.without_auc == "not defined for vectors"


def test_labels_of_one_class_have_no_auc(model, tmp_path):
    data = write_records(tmp_path / "a.tfrecord", [{**r, "clicked": 1} for r in drawn(3)])
    assert run(model, data, tmp_path / "out.csv").without_auc.endswith("all labels are equal")


def test_an_existing_output_is_replaced_only_when_told(model, tmp_path):
    records = drawn(3)
    data = write_records(tmp_path / "a.tfrecord", records)
    output = tmp_path / "out.csv"
    output.write_text("mine")
    with pytest.raises(UserError, match="exists; name another, or say --overwrite"):
        run(model, data, output)
    assert output.read_text() == "mine"
    run(model, data, output, overwrite=True)
    check(output, records)


@pytest.mark.parametrize("name", ["none/out.csv", "file/out.csv", "directory"])
def test_an_output_that_cannot_be_written(model, tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    data = write_records(tmp_path / "a.tfrecord", drawn(3))
    with pytest.raises(UserError, match=f"--output={tmp_path}/{name} "):
        run(model, data, tmp_path / name)
