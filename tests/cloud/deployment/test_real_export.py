"""A model that training has exported: whole or not."""

import json
import shutil

import pytest

from cloud.deployment.served_model import ServedModel
from tests.training_fixtures import dataset, reused
from tfps.errors import UserError


@pytest.fixture(name="trainer", scope="module")
def trainer_fixture(tmp_path_factory):
    return reused(dataset(tmp_path_factory.mktemp("data")))


@pytest.fixture(name="job_dir", scope="module")
def job_dir_fixture(trainer, tmp_path_factory):
    job_dir = tmp_path_factory.mktemp("job")
    (job_dir / "export").mkdir()
    trainer.export(job_dir / "export" / "1")
    return job_dir


@pytest.fixture(name="copy")
def copy_fixture(job_dir, tmp_path):
    """The export, to be spoilt."""
    return shutil.copytree(job_dir, tmp_path / "job") / "export" / "1"


def files(directory):
    return sorted(
        str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()
    )


def test_the_sizes_of_all_its_files_are_in_its_schema(job_dir):
    directory = job_dir / "export" / "1"
    schema = json.loads((directory / "schema.json").read_text())
    there = {name: (directory / name).stat().st_size for name in files(directory)}
    del there["schema.json"]
    assert schema["sizes"] == there
    assert ServedModel.read(str(job_dir)).version == 1


def test_no_file_of_it_may_be_cut_short_or_be_missing(copy):
    names = [name for name in files(copy) if name != "schema.json"]
    assert len(names) > 3
    for name in names:
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(UserError, match=f"is not whole: {name} has"):
            ServedModel.read(str(copy))
        (copy / name).unlink()
        with pytest.raises(UserError, match=f"is not whole: it has no {name}|has no numbered"):
            ServedModel.read(str(copy))
        (copy / name).write_bytes(content)
    assert ServedModel.read(str(copy)).version == 1
