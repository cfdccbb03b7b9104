"""`notebooks/predictions.ipynb` with a job and data on gs://."""

import os
import re

import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.notebooks import census_job
from tests.notebooks.running import execute, pictures_of, text_of


def upload(directory, name):
    """Copies what lies below a directory to the bucket."""
    for parent, _, files in os.walk(directory / name):
        for file in files:
            source = os.path.join(parent, file)
            target = f"gs://bucket/{os.path.relpath(source, directory)}"
            tf.io.gfile.copy(source, target, overwrite=True)


@pytest.mark.slow
def test_a_job_on_cloud_storage_is_looked_at_as_a_local_one(cloud, tmp_path):
    census_job.make(tmp_path)
    for name in ("runs", "data"):
        upload(tmp_path, name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    places = {"JOB_DIR": "gs://bucket/runs/census", "DATA": "gs://bucket/data/eval"}
    cells = execute("predictions", elsewhere, places)
    measured = re.search(r"AUC ([\d.]+); the report says ([\d.]+)\.", text_of(cells["data"]))
    assert float(measured[1]) == pytest.approx(float(measured[2]), abs=1e-6)
    assert "gs://bucket/runs/census/report.json" in text_of(cells["report"])
    assert len([cell for cell in cells.values() if pictures_of(cell)]) == 6
