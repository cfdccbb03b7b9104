"""`trainer.predict` with Parquet files on gs://."""

import io
import pathlib

import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.prediction_model import drawn, expected, export, run
from tfps.errors import UserError

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def upload(path: str, records: list[dict], **others) -> None:
    """Writes a Parquet file in three row groups."""
    columns = {
        "age": [record["age"] for record in records],
        "ids": [record["ids"] for record in records],
        "town": [record["town"].decode() for record in records],
        **others,
    }
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content, row_group_size=len(records) // 3)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content.getvalue())


@pytest.mark.slow
def test_parquet_files_are_read_from_gs_and_written_there_whole_or_not_at_all(
    cloud, tmp_path: pathlib.Path
):
    model = export(tmp_path / "export")
    first, second = drawn(30, seed=1), drawn(12, seed=2)
    upload("gs://bucket/in/a.parquet", first, visit=list(range(30)))
    upload("gs://bucket/in/b.parquet", second, visit=list(range(12)))
    output = "gs://bucket/out/scores.parquet"
    assert run(model, "gs://bucket/in", output, keep=["visit"]).records == 42
    with tf.io.gfile.GFile(output, "rb") as file:
        found = parquet.read_table(io.BytesIO(file.read()))
    assert found["visit"].to_pylist() == [*range(30), *range(12)]
    scores = found["prediction"].to_numpy()
    assert scores.tobytes() == expected([*first, *second]).tobytes()

    second[5]["ids"] = [0, 10]
    upload("gs://bucket/in/b.parquet", second, visit=list(range(12)))
    with pytest.raises(UserError, match=r"gs://bucket/in/b\.parquet row 6: feature 'ids': an id"):
        run(model, "gs://bucket/in", "gs://bucket/out/none.parquet")
    assert tf.io.gfile.listdir("gs://bucket/out") == ["scores.parquet"]
