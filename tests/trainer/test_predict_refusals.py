"""Models and data that `trainer.predict` refuses."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from tests.export_schema import schema
from tests.prediction_model import (
    FEATURES,
    LABEL,
    PredictionTask,
    Score,
    check,
    drawn,
    export,
    run,
    write_records,
)
from tfps.data import dataset_writer, examples
from tfps.data.feature import Feature
from tfps.errors import RunError, UserError
from tfps.export.loaded_model import ExportedModel


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return export(tmp_path_factory.mktemp("model") / "export")


# Bad models.


def remade(model: pathlib.Path, directory: pathlib.Path, **changes) -> pathlib.Path:
    """A copy of a model with another schema."""
    subprocess.run(["cp", "-r", model, directory], check=True)
    schema = json.loads((directory / "schema.json").read_text())
    (directory / "schema.json").write_text(json.dumps({**schema, **changes}))
    return directory


def test_a_directory_that_is_no_saved_model(tmp_path):
    with pytest.raises(UserError, match="is not a SavedModel"):
        ExportedModel.load(str(tmp_path))


def test_a_damaged_saved_model(model, tmp_path):
    damaged = remade(model, tmp_path / "export")
    (damaged / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=f"--model={damaged} cannot be read"):
        ExportedModel.load(str(damaged))


def test_a_model_without_a_schema(model, tmp_path):
    bare = remade(model, tmp_path / "export")
    (bare / "schema.json").unlink()
    with pytest.raises(UserError, match=r"has no schema\.json"):
        ExportedModel.load(str(bare))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "has format 1, but this version reads 2"),
        ({"features": []}, r"Expected `array` of length >= 1 - at `\$\.features`"),
        ({"labels": None}, r"Expected `array`, got `null` - at `\$\.labels`"),
        ({"labels": [{"name": "y"}]}, r"missing required field `dtype` - at `\$\.labels\[0\]`"),
        ({"features": [FEATURES[0].schema()]}, "has the inputs age, ids, town, but .* names age"),
    ],
)
def test_a_model_with_another_schema(model, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        ExportedModel.load(str(remade(model, tmp_path / "export", **changes)))


def test_a_model_without_the_signature(tmp_path):
    module = Score(1)
    tf.saved_model.save(module, str(tmp_path), signatures={"other": module.serve})
    (tmp_path / "schema.json").write_text(json.dumps(schema(FEATURES[:1], [LABEL])))
    with pytest.raises(UserError, match=r"no signature 'serving_default' \(found: other\)"):
        ExportedModel.load(str(tmp_path))


def test_a_model_that_fails(model):
    with pytest.raises(RunError, match="fails on the records"):
        ExportedModel.load(str(model)).predict(
            {
                "age": tf.zeros([2]),
                "ids": tf.zeros([3, 2], tf.int64),
                "town": tf.constant(["Ulm", "Ulm"]),
            }
        )


# Bad data.


def refused(model, data, tmp_path, message, **options) -> None:
    with pytest.raises(UserError, match=message):
        run(model, data, tmp_path / "out.csv", **options)
    assert not list(tmp_path.glob("out.csv*"))


def test_a_raw_label_where_the_config_converts_it(model, tmp_path):
    converting = remade(model, tmp_path / "export", converted=["age", "clicked"])
    assert ExportedModel.load(str(converting)).converted_labels == ("clicked",)
    (tmp_path / "rows.csv").write_text("age,ids_0,ids_1,town,clicked\n1.5,2,3,Ulm,yes\n")
    message = r"column clicked: 'yes' is .*; rows\(\) of the model's config .*: give --config to"
    refused(converting, tmp_path / "rows.csv", tmp_path, message)


@pytest.mark.parametrize("name", ["none.tfrecord", "none-*.csv"])
def test_data_that_does_not_exist(model, tmp_path, name):
    refused(model, tmp_path / name, tmp_path, "no such file")


def test_files_of_different_kinds(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", drawn(1))
    (tmp_path / "a.csv").write_text("")
    refused(model, tmp_path / "a.*", tmp_path, "only some of these files")


def test_a_directory_without_files(model, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "_SUCCESS").touch()
    refused(model, tmp_path / "data", tmp_path, "holds no files")


def test_a_file_without_records(model, tmp_path):
    refused(model, write_records(tmp_path / "a.tfrecord", []), tmp_path, "holds no record")


def test_a_config_with_records(model, tmp_path):
    data = write_records(tmp_path / "a.tfrecord", drawn(1))
    refused(model, data, tmp_path, "leave --config out", row_format=object())


def test_a_dataset_of_another_schema(model, tmp_path):
    class Other(PredictionTask):
        def features(self):
            return (Feature("age", "float32"), Feature("ids", "int64", (3,), 10))

    with dataset_writer.DatasetWriter.open(
        str(tmp_path / "data"), "other", 1, Other().schema()
    ) as writer:
        writer.finish()
    message = r"'ids' has shape \[3\], not \[2\]; 'town' is missing\."
    refused(model, tmp_path / "data", tmp_path, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": [1, 2, 3]}, r"tfrecord record 6 holds 3 values in 'ids', not 2"),
        ({"ids": [1.0, 2.0]}, r"tfrecord record 6 holds floats in 'ids', not int64"),
        ({"ids": [1, 10]}, r"tfrecord record 6 holds the id 10 in 'ids', outside \[0, 10\)"),
        ({"age": []}, r"tfrecord record 6 holds 0 values in 'age', not 1"),
        ({"age": None}, r"tfrecord record 6 has no 'age' \(it has clicked, ids, town\)"),
        ({"clicked": None}, r"tfrecord record 6 has no 'clicked'"),
    ],
)
def test_a_record_of_another_schema(model, tmp_path, changes, message):
    data = write_any(tmp_path, [*drawn(5), {**drawn(1)[0], **changes}])
    refused(model, data, tmp_path, message)


def write_any(tmp_path: pathlib.Path, records: list[dict]) -> pathlib.Path:
    """Writes records whose features have the dtypes of their values; None leaves one out."""
    path = tmp_path / "any.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            features = []
            for name, value in record.items():
                if value is not None:
                    values = value if isinstance(value, list) else [value]
                    dtype = "float32" if name == "age" else None
                    features.append((name, np.array(values, dtype)))
            writer.write(
                examples.encode(
                    dict(features),
                    [
                        Feature(name, dtype_of(array), array.shape if array.size else (None,))
                        for name, array in features
                    ],
                )
            )
    return path


def dtype_of(array: np.ndarray) -> str:
    return {"i": "int64", "f": "float32", "S": "string"}[array.dtype.kind]


def test_a_later_file_without_labels(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", drawn(2))
    write_records(tmp_path / "b.tfrecord", drawn(2), labels=())
    refused(model, tmp_path / "*.tfrecord", tmp_path, r"b\.tfrecord record 1 has no label, but")


def test_a_record_that_is_no_example(model, tmp_path):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"\xff\xff")
    refused(model, path, tmp_path, r"record 1 is no tf\.train\.Example")


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_a_corrupt_file(model, tmp_path, name):
    data = write_records(tmp_path / name, drawn(20))
    content = data.read_bytes()
    data.write_bytes(content[: len(content) // 2])
    refused(model, data, tmp_path, r"a\.tfrecord(\.gz)? record \d+ is corrupt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, or its first line is no row; it must name the columns"),
        ("age,ids_0\rids_1,town\n", "is empty, or its first line is no row"),
        ("age,ids_0,town\n1,2,Ulm\n", r"line 1: there is no column 'ids_1'"),
        ("age,ids_0,ids_1,town,age\n", r"line 1: the header names the column 'age' twice"),
        ("age,ids_0,ids_1,town\n1,2,3,Ulm\n1,2,3\n", "line 3: 3 columns, but the format has 4"),
        ("age,ids_0,ids_1,town\n1,2,x,Ulm\n", "line 2 column ids_1: 'x' is not an integer"),
        ("age,ids_0,ids_1,town\n1,2,99,Ulm\n", r"line 2: feature 'ids': an id in \[2, 99\] lies"),
    ],
)
def test_bad_rows_under_a_header(model, tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    refused(model, tmp_path / "a.csv", tmp_path, message)


def test_bad_rows_are_counted_when_allowed(model, tmp_path):
    text = "age,ids_0,ids_1,town\n1,2,x,Ulm\n3,2,1,Ulm\n4,5\n"
    (tmp_path / "a.csv").write_text(text)
    result = run(model, tmp_path / "a.csv", tmp_path / "out.csv", max_bad_rows=2)
    assert (result.records, result.bad_rows) == (1, 2)
    check(tmp_path / "out.csv", [{"age": 3.0, "ids": [2, 1], "town": b"Ulm"}], labelled=False)
    (tmp_path / "out.csv").unlink()
    message = r"a\.csv line 4: 2 columns.*--max_bad_rows=2 or more"
    refused(model, tmp_path / "a.csv", tmp_path, message, max_bad_rows=1)
