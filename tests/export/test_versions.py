"""Versions of an exported model: numbered, whole before they are seen, the old ones deleted."""

import pathlib

import pytest

from tfps.errors import UserError
from tfps.export import versions
from tfps.export.exported_files import GRAPH_FILE
from tfps.export.loaded_model import ExportedModel


def make(base, number, is_whole=True):
    version = pathlib.Path(base, str(number))
    version.mkdir(parents=True)
    version.joinpath("variables").touch()
    if is_whole:
        version.joinpath(GRAPH_FILE).touch()


def test_the_newest_is_the_greatest_number_that_is_whole(tmp_path):
    base = str(tmp_path / "export")
    assert (versions.newest_version(base), versions.next_version(base)) == (None, f"{base}/1")
    for number in (2, 10, 9):
        make(base, number)
    make(base, 11, is_whole=False)
    for other in ("12.tmp", "refused", "²"):
        make(base, other)
    assert versions.whole_versions(base) == [2, 9, 10]
    assert versions.newest_version(base) == f"{base}/10"
    assert versions.next_version(base) == f"{base}/12"


def test_the_newest_stay_with_what_is_none_of_ours(tmp_path):
    for number in (1, 3, 4):
        make(tmp_path, number)
    make(tmp_path, 2, is_whole=False)
    make(tmp_path, "refused")
    make(tmp_path, 5, is_whole=False)  # another process may be writing it
    versions.delete_old(str(tmp_path), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4", "5", "refused"]


def test_a_directory_without_a_whole_version_is_no_model(tmp_path):
    make(tmp_path, 1, is_whole=False)
    with pytest.raises(UserError, match=r"is not a SavedModel \(it has no saved_model.pb\)"):
        ExportedModel.load(str(tmp_path))
