"""Both notebooks where there is no checkout, only what the project's wheel has, as in Colab."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.notebooks import census_job
from tests.notebooks.running import cells_of, client_of, pictures_of, read, set_parameters, text_of
from tests.notebooks.test_first_run import SMALL
from tests.notebooks.test_predictions import PICTURES
from tests.project import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WHERE = "import tfps, configs\nprint(tfps.__file__)\nprint(configs.__file__)"


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(name="installed", scope="module")
def installed_fixture(tmp_path_factory):
    """A directory in which the project's wheel is installed, and nothing else."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheel", "site"))
    for name in ("cloud", "configs", "tfps", "trainer"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", source)
    [wheel] = wheels.glob("tfps-*.whl")
    pip("install", "--no-deps", f"--target={target}", wheel)
    return target


def executed(name, directory, installed, monkeypatch, parameters=None):
    """The cells of a notebook, executed in a directory that has no configs."""
    notebook = read(name)
    set_parameters(notebook, parameters or {})
    notebook.cells.append(nbformat.v4.new_code_cell(WHERE, id="where"))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    client_of(notebook, directory, has_configs=False).execute()
    assert "configs" not in os.listdir(directory)
    cells = cells_of(notebook)
    for line in text_of(cells["where"]).splitlines():
        assert line.startswith(f"{installed}/")
    return cells


def test_predictions_take_the_config_from_the_wheel(installed, tmp_path, monkeypatch):
    census_job.make(tmp_path)
    cells = executed("predictions", tmp_path, installed, monkeypatch)
    assert {name for name, cell in cells.items() if pictures_of(cell)} == PICTURES
    assert "Shown are 16 of 16 groups" in text_of(cells["groups"])


def test_a_first_run_takes_the_config_from_the_wheel(installed, tmp_path, monkeypatch):
    cells = executed("first_run", tmp_path, installed, monkeypatch, SMALL)
    assert "exported the model" in text_of(cells["train"])
    assert text_of(cells["predict"]).count("predicted 0.") == 5
