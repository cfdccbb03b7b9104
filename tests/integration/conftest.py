"""What the trainer's integration tests share."""

import pathlib

import pytest
from datasets_on_disk import Datasets, make_datasets


@pytest.fixture(name="datasets", scope="session")
def datasets_fixture(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return make_datasets(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "job"
