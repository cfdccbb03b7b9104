"""The README: its model trains as it stands, and its figures are those that were measured."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import tfps
from tests.project import ROOT
from tests.training_fixtures import Trainer
from tfps.errors import RunError
from tfps.experiment import overrides
from tfps.export.loaded_model import ExportedModel
from trainer.datasets.generation import generate
from trainer.datasets.prediction_input import PredictionInput


def python(module, *flags, cwd):
    command = [sys.executable, "-m", module, *flags]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def code_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def job_dir(tmp_path_factory):
    """What the model of the README left behind, which was trained in one process."""
    directory = tmp_path_factory.mktemp("readme")
    (code,) = code_of("README.md")
    (directory / "mine.py").write_text(code)
    sizes = ("--task.users=50", "--task.movies=40")
    made = python(
        "trainer.generate",
        *("--config=mine.py", "--records=300", "--shards=2", "--output=data/mine", *sizes),
        cwd=directory,
    )
    assert made.returncode == 0, made.stderr
    trained = python(
        "trainer.task",
        *(
            "--mode.name=local",
            "--config=mine.py",
            "--data.train=data/mine",
            "--data.eval=data/mine",
        ),
        *("--job_dir=runs/mine", *sizes),
        cwd=directory,
    )
    assert trained.returncode == 0, trained.stderr
    assert "evaluation after epoch 2" in trained.stderr
    return directory / "runs/mine"


def test_the_model_of_the_readme_is_complete_and_trains(job_dir):
    (code,) = code_of("README.md")
    assert len(code.splitlines()) < 60
    assert json.loads((job_dir / "report.json").read_text())["status"] == "finished"


def test_every_field_of_its_report_is_explained(job_dir):
    fields = json.loads((job_dir / "report.json").read_text())
    page = (ROOT / "docs/report.md").read_text()
    told = re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)
    examples = [f"examples.{name}" for name in fields.pop("examples")]
    assert sorted(told) == sorted([*fields, *examples, "error"])  # which a run has that fails


@pytest.mark.slow
def test_many_ids_per_record_from_the_pages_to_predictions_for_rows_of_text(tmp_path):
    (model,), (tagged, *_) = code_of("README.md"), code_of("docs/embeddings.md")
    (tmp_path / "tagged.py").write_text(model + tagged)
    experiment = overrides.apply(
        overrides.load(str(tmp_path / "tagged.py")),
        ["task.users=50", "task.movies=40", "task.tags=30", "train.dense_table_bytes=0"],
    )
    data = generate(experiment, str(tmp_path / "data"), records=100, shards=1)
    trainer = Trainer(data, experiment.task)
    trainer.coordinator.train(trainer.queue(), lambda: False, print)
    trainer.export(tmp_path / "export")
    model = ExportedModel.load(str(tmp_path / "export"))

    rows = tmp_path / "rows.csv"
    movies, context = (
        [f"{name}_{i}" for i in range(n)] for name, n in (("movies", 5), ("context", 8))
    )
    head = ",".join(["user", *movies, *context, "tags", "tag_weights"])
    start = "7,1,2,3,4,5" + 8 * ",0.5"
    rows.write_text(f"{head}\n{start},3|17,0.5|2\n{start},,\n{start},29,1\n{start},30,1\n")
    (found,) = PredictionInput.find(str(rows), "auto", model, max_bad_rows=1).columns(10)
    assert found.count == 3  # tag 30 is outside the vocabulary
    assert found.features["tags"].to_list() == [[3, 17], [], [29]]
    predictions = model.predict(found.features)["predictions"]
    assert len(set(predictions.tolist())) == 3

    rows.write_text(f"{head}\n{start},3|17,0.5\n")
    (found,) = PredictionInput.find(str(rows), "auto", model).columns(10)
    with pytest.raises(RunError, match="a record has not as many weights as ids"):
        model.predict(found.features)


@pytest.mark.slow
def test_a_table_without_a_vocabulary_from_the_page_to_predictions_for_new_users(tmp_path):
    (model,), (_, any_users, *_) = code_of("README.md"), code_of("docs/embeddings.md")
    (tmp_path / "any_users.py").write_text(model + any_users)
    experiment = overrides.apply(overrides.load(str(tmp_path / "any_users.py")), ["task.movies=40"])
    features = {
        "user": np.array([-5, 2**63 - 1, 12, -5] * 25),
        "movies": np.arange(500).reshape(100, 5) % 40,
        "context": np.full([100, 8], 0.5, np.float32),
        "page": np.array(["/", "/jazz", "", "/"] * 25, object),
    }
    task, labels = experiment.task, np.arange(100) % 2
    kinds = {"features": task.features(), "label": task.label()}
    data = tfps.write_dataset(str(tmp_path / "data"), features, labels, **kinds)
    trainer = Trainer(data, task)
    trainer.coordinator.train(trainer.queue(), lambda: False, print)
    trainer.export(tmp_path / "export")
    model = ExportedModel.load(str(tmp_path / "export"))
    users, pages, _ = (table.name for table in model.tables)
    assert np.abs(model.rows(users, [-5, 2**63 - 1])).min() > 0
    assert not model.rows(users, [77]).any()  # nobody has seen this one
    assert np.abs(model.rows(pages, ["/", ""])).min() > 0


def test_the_figures_are_those_of_the_benchmarks():
    row = r"^\s*\| .*\(`([\w-]+)`\) \| ([\d.]+) . \| ([\d.]+) . \|$"
    told = re.findall(row, (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(told) == 6
    first_table = (ROOT / "docs/benchmarks.md").read_text().split("\n### ")[1]
    for system, examples, cpu in told:
        [line] = [each for each in first_table.splitlines() if each.startswith(f"| {system} |")]
        medians = [cell.split()[0] for cell in line.split(" | ")[1:3]]
        assert medians == [examples, cpu], system
