"""`notebooks/predictions.ipynb` on other models than that which it was made with."""

import re

import nbclient
import pytest

from tests.keras_models.cases import ALL
from tests.keras_models.test_keras_models import trained
from tests.notebooks import census_job
from tests.notebooks.running import (
    cells_of,
    client_of,
    execute,
    read,
    set_parameters,
    text_of,
)
from tests.notebooks.test_predictions import PICTURES, drawn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ALONE = {"CONFIG": "", "GROUP_BY": "", "TABLE": "", "TOKENS_OF": "", "ROWS": []}


def execute_on(name, directory, **parameters):
    """What the notebook shows of one of the models that others publish the kind of."""
    [case] = (each for each in ALL if each.name == name)
    trainer, _, _ = trained(case, directory)
    (directory / "job/export").mkdir(parents=True)
    trainer.export(directory / "job/export/1")
    places = {"JOB_DIR": "job", "DATA": "data"}
    return execute("predictions", directory, {**ALONE, **places, **parameters})


def test_a_job_of_the_demo(tmp_path):
    config, sets = "--config=configs/criteo.py", ["task.rows_per_table=500"]
    flags = [config, f"--{sets[0]}"]
    for name, records, seed in (("train", 3000, 0), ("eval", 600, 1)):
        size = [f"--records={records}", f"--seed={seed}", "--shards=4"]
        census_job.run("trainer.generate", *flags, *size, f"--output={tmp_path / name}")
    paths = [f"--data.train={tmp_path / 'train'}", f"--data.eval={tmp_path / 'eval'}"]
    census_job.run(
        "trainer.task", "--mode.name=local", *flags, *paths, f"--job_dir={tmp_path / 'job'}"
    )
    parameters = {
        **{"JOB_DIR": "job", "DATA": "eval", "CONFIG": "configs/criteo.py", "SET": sets},
        **{"GROUP_BY": "categorical_1", "TABLE": "", "TOKENS_OF": "", "ROWS": []},
    }
    cells = execute("predictions", tmp_path, parameters)
    measured = re.search(r"AUC ([\d.]+); the report says ([\d.]+)\.", text_of(cells["data"]))
    assert float(measured[1]) == pytest.approx(float(measured[2]), abs=1e-6)
    assert drawn(cells) == PICTURES
    assert "categorical_1/embeddings: 500 rows of 16" in text_of(cells["model"])


def test_a_table_without_a_vocabulary(tmp_path):
    census_job.make(tmp_path, "configs/census_raw.py")
    parameters = {"CONFIG": "configs/census_raw.py", "TABLE": "", "TOKENS_OF": "occupation"}
    cells = execute("predictions", tmp_path, {**parameters, "GROUP_BY": "occupation"})
    assert "a row for each key, each of" in text_of(cells["model"])
    assert re.search(r"^Sales +\S.* \(-?\d", text_of(cells["rows"]), re.MULTILINE)
    assert "plane" in drawn(cells)


def test_bags_of_ids_and_scores_that_are_no_chances(tmp_path):
    cells = execute_on("weighted_basket", tmp_path, GROUP_BY="shop")
    assert "AUC 0." in text_of(cells["data"])
    assert drawn(cells) == {"roc", "groups", "importance", "explain", "plane"}
    assert text_of(cells["calibration"]) == (
        "The predictions of 'returns' are no chances between 0 and 1, so calibration does not "
        "apply to them.\n"
    )
    assert text_of(cells["report"]) == "job has no report.json.\n"


def test_strings(tmp_path):
    cells = execute_on("string_lookup_mlp", tmp_path, GROUP_BY="color")
    assert drawn(cells) == PICTURES
    assert re.search(r"Shown are (\d+) of \1 groups", text_of(cells["groups"]))


@pytest.mark.parametrize(
    ("label", "measured", "also"),
    [("", "mean absolute error", {"numbers"}), ("car_kind", "accuracy", set())],
)
def test_several_outputs_of_which_none_is_yes_or_no(tmp_path, label, measured, also):
    cells = execute_on("price_and_kind", tmp_path, LABEL=label)
    assert re.search(rf"^{measured} \d", text_of(cells["data"]), re.MULTILINE)
    assert drawn(cells) == {"importance", "explain", "plane", *also}
    for name in ("roc", "calibration", "groups"):
        said = text_of(cells[name])
        assert said.startswith(f"The label {label or 'price'!r} is ")
        assert said.endswith("so ROC, calibration and AUC do not apply to it.\n")


def test_a_model_of_pictures_has_no_rows(tmp_path):
    cells = execute_on("convnet", tmp_path)
    assert (
        text_of(cells["rows"]) == "The model has no embedding, so there are no rows to look at.\n"
    )
    assert {"importance", "explain"} <= drawn(cells)


def test_a_mistake_is_told_in_a_line(tmp_path):
    notebook = read("predictions")
    set_parameters(notebook, {"JOB_DIR": "nowhere"})
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        client_of(notebook, tmp_path).execute()
    cells = cells_of(notebook)
    assert text_of(cells["report"]) == "nowhere has no report.json.\n"
    assert text_of(cells["model"]) == (
        "error: nowhere holds neither an exported model nor a report.json: no job ran there; name "
        "the --job_dir of a trained job\n"
    )
    assert not cells["data"].outputs
