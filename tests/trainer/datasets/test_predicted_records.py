"""Records with their predictions, in memory."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.prediction_model import CONFIG, drawn, expected, export, write_records
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.export.loaded_model import ExportedModel
from trainer.datasets import batched_prediction
from trainer.datasets.batched_prediction import PredictedRecords


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ExportedModel.load(str(export(tmp_path_factory.mktemp("model") / "export")))


def check(found, records):
    assert found.count == len(records)
    np.testing.assert_array_equal(found.predictions["predictions"], expected(records))
    assert found.features["town"].tolist() == [record["town"] for record in records]
    assert found.features["ids"].tolist() == [record["ids"] for record in records]


def test_all_records_of_several_files_are_there_in_order(model, tmp_path, monkeypatch):
    monkeypatch.setattr(batched_prediction, "_BATCH_SIZE", 4)
    records = drawn(21)
    for number in range(3):
        write_records(tmp_path / f"{number}.tfrecord", records[7 * number : 7 * number + 7])
    found = PredictedRecords.read(model, str(tmp_path / "*.tfrecord"))
    check(found, records)
    assert found.labels["clicked"].tolist() == [record["clicked"] for record in records]
    assert not found.has_more


@pytest.mark.parametrize("most", [1, 4, 5, 8, 20])
def test_the_first_records_are_read_and_it_is_said_that_there_are_more(
    model, tmp_path, monkeypatch, most
):
    monkeypatch.setattr(batched_prediction, "_BATCH_SIZE", 4)
    records = drawn(21)
    write_records(tmp_path / "a.tfrecord", records)
    found = PredictedRecords.read(model, str(tmp_path / "a.tfrecord"), most=most)
    check(found, records[:most])
    assert found.has_more


def test_as_many_as_are_asked_for_are_all(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", drawn(9))
    assert not PredictedRecords.read(model, str(tmp_path / "a.tfrecord"), most=9).has_more


def test_rows_of_text_are_read_as_a_config_says_and_records_without_it(model, tmp_path):
    (tmp_path / "towns.py").write_text(CONFIG)
    row_format = overrides.load(str(tmp_path / "towns.py")).task.rows()
    records = drawn(5)
    lines = [f"{r['age']!r}|{r['ids'][0]}|{r['ids'][1]}|x|{r['town'].decode()}\n" for r in records]
    (tmp_path / "rows.txt").write_text("".join(lines))
    found = PredictedRecords.read(model, str(tmp_path / "rows.txt"), row_format)
    check(found, records)
    assert found.labels == {}
    write_records(tmp_path / "a.tfrecord", records)
    check(PredictedRecords.read(model, str(tmp_path / "a.tfrecord"), row_format), records)


def test_lists_of_any_length_are_joined(tmp_path, monkeypatch):
    """A feature of shape `(None,)`, whose reads come in several parts."""
    monkeypatch.setattr(batched_prediction, "_BATCH_SIZE", 4)
    bags = [list(range(k % 4)) for k in range(10)]
    feature, label = tfps.Feature("bag", "int64", (None,)), tfps.Feature("size", "int64")
    columns = np.empty(10, object)
    columns[:] = [np.array(bag, np.int64) for bag in bags]
    sizes = {"size": np.array(list(map(len, bags)))}
    tfps.write_dataset(
        str(tmp_path / "data"), {"bag": columns}, sizes, features=[feature], label=label, shards=2
    )

    @dataclasses.dataclass
    class Lengths:
        features: tuple = (feature,)
        labels: tuple = (label,)

        def predict(self, inputs):
            return {"length": tf.cast(inputs["bag"].row_lengths(), tf.float32).numpy()}

        def check_schema(self, *_):
            pass

    found = PredictedRecords.read(Lengths(), str(tmp_path / "data"), most=9)
    assert found.features["bag"].shape[0] == 9
    assert found.predictions["length"].tolist() == found.labels["size"].tolist()
    assert [len(bag) for bag in found.features["bag"].to_list()] == found.labels["size"].tolist()


def test_data_without_a_record_are_refused(model, tmp_path):
    write_records(tmp_path / "a.tfrecord", [])
    with pytest.raises(UserError, match=r"a\.tfrecord holds no record"):
        PredictedRecords.read(model, str(tmp_path / "a.tfrecord"))
