"""`notebooks/predictions.ipynb`, executed from top to bottom."""

import json
import re

import pytest

from tests.notebooks import census_job
from tests.notebooks.running import execute, pictures_of, text_of

PICTURES = {"roc", "calibration", "groups", "importance", "explain", "plane"}


def drawn(cells):
    return {name for name, cell in cells.items() if pictures_of(cell)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where the paths of the notebook lead to a small job on drawn rows."""
    found = tmp_path_factory.mktemp("project")
    census_job.make(found)
    return found


@pytest.mark.slow
def test_on_a_census_job_it_shows_all_and_measures_what_the_report_says(directory):
    cells = execute("predictions", directory)
    report = json.loads((directory / "runs/census/report.json").read_text())
    measured, told = re.search(
        r"AUC ([\d.]+); the report says ([\d.]+)\.", text_of(cells["data"])
    ).groups()
    assert float(measured) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
    assert float(told) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
    assert text_of(cells["report"]).startswith("job        census, finished (local mode")
    assert "600 records predicted." in text_of(cells["data"])
    assert len(re.findall(r"^0\.\d+ \d\d, Private", text_of(cells["typed"]), re.MULTILINE)) == 3
    assert "Shown are 16 of 16 groups" in text_of(cells["groups"])
    rows = text_of(cells["rows"]).splitlines()
    assert len(rows) == 15
    assert rows[1].startswith("Tech-support")
    assert drawn(cells) == PICTURES
    assert not any(output.output_type == "error" for x in cells.values() for output in x.outputs)
