"""`trainer.predict`, on a SavedModel made by hand."""

import csv
import gzip
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from tfps import metrics
from tfps.data import dataset_writer, examples
from tfps.errors import RunError, UserError
from tfps.feature import Feature
from tfps.task import Task
from trainer import predict
from trainer.exported_model import ExportedModel
from trainer.predict import Predictions
from trainer.prediction_input import PredictionInput

FEATURES = (
    Feature("age", "float32"),
    Feature("ids", "int64", (2,), 10),
    Feature("town", "string"),
)
LABEL = Feature("clicked", "int64", vocabulary=2)
ROOT = pathlib.Path(__file__).parents[1]

CONFIG = """
import dataclasses

from tfps.experiment import Experiment
from tfps.feature import Feature
from tfps.data.converters import integer, number
from tfps.data.rows import Field, RowFormat
from tfps.task import Task


@dataclasses.dataclass(frozen=True)
class Towns(Task):
    delimiter: str = "|"

    def features(self):
        return (
            Feature("age", "float32"),
            Feature("ids", "int64", (2,), 10),
            Feature("town", "string"),
        )

    def label(self):
        return Feature("clicked", "int64", vocabulary=2)

    def build_model(self):
        raise AssertionError("prediction needs no model of the task")

    loss = optimizer = build_model

    def rows(self):
        columns = ("clicked", "age", "first", "second", "unused", "town")
        fields = {
            "clicked": Field(("clicked",), integer),
            "age": Field(("age",), number),
            "ids": Field(("first", "second"), integer),
            "town": Field(("town",), lambda text: text.encode()),
        }
        return RowFormat(columns, self.delimiter, fields)


def get_config():
    return Experiment("towns", Towns())
"""


class TownsTask(Task):
    def features(self):
        return FEATURES

    def label(self):
        return LABEL

    def build_model(self):
        raise AssertionError("prediction needs no model of the task")

    loss = optimizer = build_model


class Score(tf.Module):
    """`age / 3 + sum(ids) + 100 * length(town)`, doubled columns when `width` is 2."""

    def __init__(self, width: int):
        super().__init__()
        self._width = width

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, "age"),
            tf.TensorSpec([None, 2], tf.int64, "ids"),
            tf.TensorSpec([None], tf.string, "town"),
        ]
    )
    def serve(self, age, ids, town):
        length = tf.cast(tf.strings.length(town), tf.float32)
        score = age / 3.0 + tf.cast(tf.reduce_sum(ids, axis=1), tf.float32) + 100.0 * length
        if self._width > 1:
            score = tf.stack([score * k for k in range(1, self._width + 1)], axis=1)
        return {"predictions": score}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve_examples(self, serialized):
        return self.serve(**examples.parse(serialized, FEATURES)[0])


def export(directory: pathlib.Path, width: int = 1) -> pathlib.Path:
    module = Score(width)
    signatures = {"serving_default": module.serve, "serving_examples": module.serve_examples}
    tf.saved_model.save(module, str(directory), signatures=signatures)
    schema = {
        "format": 2,
        "features": [feature.schema() for feature in FEATURES],
        "labels": [LABEL.schema()],
    }
    (directory / "schema.json").write_text(json.dumps(schema))
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return export(tmp_path_factory.mktemp("model") / "export")


def drawn(count: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    towns = [b"Ulm", b"Bonn", "Köln".encode(), b"a,b"]
    return [
        {
            "age": float(np.float32(rng.normal())),
            "ids": rng.integers(0, 10, 2).tolist(),
            "town": towns[rng.integers(len(towns))],
            "clicked": int(rng.integers(2)),
        }
        for _ in range(count)
    ]


def expected(records: list[dict]) -> np.ndarray:
    age = np.float32([record["age"] for record in records])
    rest = [sum(record["ids"]) + 100 * len(record["town"]) for record in records]
    return age / np.float32(3) + np.float32(rest)


def write_records(
    path: pathlib.Path, records: list[dict], labels: Sequence[Feature] = (LABEL,)
) -> pathlib.Path:
    options = tf.io.TFRecordOptions("GZIP" if path.name.endswith(".gz") else "")
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(examples.encode(record, FEATURES, labels))
    return path


def run(
    model: pathlib.Path,
    data: pathlib.Path | str,
    output: pathlib.Path,
    data_format: str = "auto",
    row_format=None,
    max_bad_rows: int = 0,
    batch_size: int = 4,
    overwrite: bool = False,
) -> Predictions:
    loaded = ExportedModel(str(model))
    source = PredictionInput(str(data), data_format, loaded, row_format, max_bad_rows)
    return predict.predict(loaded, source, str(output), batch_size, overwrite)


def read(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return header, np.array(rows)


def check(output: pathlib.Path, records: list[dict], labelled: bool = True) -> None:
    header, rows = read(output)
    assert header == (["label", "prediction"] if labelled else ["prediction"])
    # Nine digits give back the very float32.
    assert rows[:, -1].astype(np.float32).tobytes() == expected(records).tobytes()
    if labelled:
        assert rows[:, 0].astype(int).tolist() == [record["clicked"] for record in records]
    assert not output.with_name(f"{output.name}.partial").exists()


# Every kind of data.


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a-00000-of-00001.tfrecord"])
def test_one_tfrecord_file(model, tmp_path, name):
    records = drawn(10)
    data = write_records(tmp_path / name, records)
    result = run(model, data, tmp_path / "out.csv")
    check(tmp_path / "out.csv", records)
    labels = [record["clicked"] for record in records]
    assert result == Predictions(10, 0, metrics.auc(labels, expected(records)), "")


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
    assert (result.auc, result.without_auc) == (None, "not known without labels")


def test_a_dataset(model, tmp_path):
    records = drawn(7)
    with dataset_writer.DatasetWriter(str(tmp_path / "data"), "towns", 3, TownsTask()) as writer:
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
        "--set=task.delimiter=;",
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


def command(*args: str) -> subprocess.CompletedProcess:
    # Importing an entry point has set the level in this process.
    environ = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", "trainer.predict", *args],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=environ,
        check=False,
    )


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


# Bad models.


def remade(model: pathlib.Path, directory: pathlib.Path, **changes) -> pathlib.Path:
    """A copy of a model with another schema."""
    subprocess.run(["cp", "-r", model, directory], check=True)
    schema = json.loads((directory / "schema.json").read_text())
    (directory / "schema.json").write_text(json.dumps({**schema, **changes}))
    return directory


def test_a_directory_that_is_no_saved_model(tmp_path):
    with pytest.raises(UserError, match="is not a SavedModel"):
        ExportedModel(str(tmp_path))


def test_a_damaged_saved_model(model, tmp_path):
    damaged = remade(model, tmp_path / "export")
    (damaged / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=f"--model={damaged} cannot be read"):
        ExportedModel(str(damaged))


def test_a_model_without_a_schema(model, tmp_path):
    bare = remade(model, tmp_path / "export")
    (bare / "schema.json").unlink()
    with pytest.raises(UserError, match=r"has no schema\.json"):
        ExportedModel(str(bare))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "has format 1, but this version reads 2"),
        ({"features": []}, "not a list of features"),
        ({"labels": []}, "not a list of labels"),
        ({"labels": [{"name": "y"}]}, "labels: .* lacks a good name, dtype, shape"),
        ({"features": [FEATURES[0].schema()]}, "has the inputs age, ids, town, but .* names age"),
    ],
)
def test_a_model_with_another_schema(model, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        ExportedModel(str(remade(model, tmp_path / "export", **changes)))


def test_a_model_without_the_signature(tmp_path):
    module = Score(1)
    tf.saved_model.save(module, str(tmp_path), signatures={"other": module.serve})
    (tmp_path / "schema.json").write_text(
        json.dumps({"format": 2, "features": [FEATURES[0].schema()], "labels": [LABEL.schema()]})
    )
    with pytest.raises(UserError, match=r"no signature 'serving_default' \(found: other\)"):
        ExportedModel(str(tmp_path))


def test_a_model_that_fails(model):
    with pytest.raises(RunError, match="fails on the records"):
        ExportedModel(str(model)).predict(
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


@pytest.mark.parametrize("name", ["none.tfrecord", "none-*.csv"])
def test_data_that_does_not_exist(model, tmp_path, name):
    refused(model, tmp_path / name, tmp_path, "no such file")


def test_files_of_different_kinds(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", drawn(1))
    (tmp_path / "a.csv").write_text("")
    refused(model, tmp_path / "a.*", tmp_path, "only some of these files")


def test_a_directory_without_manifest(model, tmp_path):
    (tmp_path / "data").mkdir()
    refused(model, tmp_path / "data", tmp_path, r"has no manifest\.json")


def test_a_file_without_records(model, tmp_path):
    refused(model, write_records(tmp_path / "a.tfrecord", []), tmp_path, "holds no record")


def test_a_config_with_records(model, tmp_path):
    data = write_records(tmp_path / "a.tfrecord", drawn(1))
    refused(model, data, tmp_path, "leave --config out", row_format=object())


def test_a_dataset_of_another_schema(model, tmp_path):
    class Other(TownsTask):
        def features(self):
            return (Feature("age", "float32"), Feature("ids", "int64", (3,), 10))

    with dataset_writer.DatasetWriter(str(tmp_path / "data"), "other", 1, Other()) as writer:
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
                    [Feature(name, dtype_of(array), array.shape) for name, array in features],
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
        ("", "is empty; its first line must name the features"),
        ("age,ids_0,town\n1,2,Ulm\n", r"line 1: .* it lacks 'ids_1'"),
        ("age,ids_0,ids_1,town,x\n", r"line 1: .* it has the unknown 'x'"),
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
