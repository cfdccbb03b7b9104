"""Files of predictions, without a model."""

import numpy as np
import pytest

from tfps.errors import UserError
from trainer.datasets.predictions_file import PredictionsFile
from trainer.datasets.record_columns import ListedColumn

parquet = pytest.importorskip("pyarrow.parquet")
ROWS = 140_000


def write(path, *parts):
    file = PredictionsFile(str(path), overwrite=False)
    file.open()
    for kept, predictions in parts:
        file.write(kept, {}, predictions)
    assert not path.exists()
    file.finish()


def test_more_rows_than_are_held_at_once(tmp_path):
    scores = np.random.default_rng(0).normal(size=(2, ROWS)).astype(np.float32)
    visits = ListedColumn([str(row) for row in range(ROWS)], "string")
    parts = [({"visit": visits}, {"": some}) for some in scores]
    write(tmp_path / "a.csv", *parts)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("visit,prediction", 1 + 2 * ROWS)
    cells = [line.split(",") for line in lines[1:]]
    assert [visit for visit, _ in cells] == 2 * visits.values
    assert np.array([score for _, score in cells], np.float32).tobytes() == scores.tobytes()
    write(tmp_path / "a.parquet", *parts)
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups == 2
    found = file.read()
    assert found["visit"].to_pylist() == 2 * visits.values
    assert found["prediction"].to_numpy().tobytes() == scores.tobytes()
    assert not list(tmp_path.glob("*.partial"))


def test_numbers_have_as_few_digits_as_give_them_back(tmp_path):
    values = np.float32([0.1, 1e-30, -0.0, 1e30, np.nan, np.inf, -np.inf, 1 / 3, 16777217, 5])
    write(tmp_path / "a.csv", ({}, {"": np.stack([values, -values], 1)}))
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "prediction_0,prediction_1"
    assert lines[1:3] == ["0.1,-0.1", "1e-30,-1e-30"]
    read = np.array([line.split(",") for line in lines[1:]], np.float32)
    np.testing.assert_array_equal(read, np.stack([values, -values], 1))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_bytes_that_are_no_text_are_refused_not_changed(tmp_path, form):
    file = PredictionsFile(str(tmp_path / f"a.{form}"), overwrite=False)
    file.open()
    ids = np.array([b"K\xc3\xb6ln", b"K\xf6ln"], object)
    with pytest.raises(UserError, match=r"column 'id' of the output: b'K\\xf6ln' is no UTF-8 text"):
        file.write({"id": ids}, {}, {"": np.zeros([2, 1], np.float32)})
    file.discard()
    write(tmp_path / f"b.{form}", ({"id": ids[:1]}, {"": np.zeros([1, 1], np.float32)}))


def test_columns_of_one_name_are_refused(tmp_path):
    file = PredictionsFile(str(tmp_path / "a.csv"), overwrite=False)
    file.open()
    kept = {"prediction_1": ListedColumn(["x"], "string")}
    with pytest.raises(UserError, match="--keep: the output would have two columns 'prediction_1'"):
        file.write(kept, {}, {"": np.zeros([1, 2], np.float32)})
    file.discard()
    assert not list(tmp_path.iterdir())
