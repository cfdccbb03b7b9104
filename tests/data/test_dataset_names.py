"""Which dataset comes next where they appear while a run trains."""

import pathlib

import pytest

from tfps.data.dataset_names import ListedNames, names_of
from tfps.errors import UserError


def finish(root, *names):
    for name in names:
        (root / name).mkdir(exist_ok=True)
        (root / name / "manifest.json").write_text("{}")


def begin(root, *names):
    for name in names:
        (root / name).mkdir()


class Notes(list[str]):
    def __call__(self, sentence):
        self.append(sentence)


def test_numbers_come_one_after_the_other_and_none_is_left_out(tmp_path):
    names, notes = names_of(f"{tmp_path}/{{epoch:03}}"), Notes()
    finish(tmp_path, "001", "003")
    begin(tmp_path, "002")
    assert names.after("", notes) == "1"
    assert names.directory("1") == f"{tmp_path}/001"
    assert names.after("1", notes) is None
    assert names.wanted("1") == f"{tmp_path}/002/manifest.json"
    finish(tmp_path, "002")
    assert (names.after("1", notes), names.after("2", notes)) == ("2", "3")
    assert names.after("999", notes) is None
    assert names.wanted("999") == f"{tmp_path}/1000/manifest.json"
    assert notes == []
    with pytest.raises(UserError, match=r"has trained the dataset '2026-11-01' of a directory"):
        names.directory("2026-11-01")  # of a checkpoint


def test_names_come_in_their_order_and_one_that_is_too_late_is_told_of_once(tmp_path):
    names, notes = names_of(str(tmp_path)), Notes()
    assert names.after("", notes) is None
    finish(tmp_path, "11-02", "11-03", ".trash", "_temporary")
    assert names.after("", notes) == "11-02"
    assert names.after("11-02", notes) == "11-03"
    assert names.after("11-03", notes) is None
    assert "behind '11-03'" in names.wanted("11-03")
    assert notes == []
    finish(tmp_path, "11-01", "11-04")
    assert [names.after("11-03", notes) for _ in range(2)] == ["11-04", "11-04"]
    assert notes == [f"{tmp_path}/11-01 came after 11-03, before which it sorts: not taken"]


def test_what_is_there_when_a_run_begins_is_not_late(tmp_path):
    notes = Notes()
    finish(tmp_path, "1", "2", "3")
    assert names_of(str(tmp_path)).after("2", notes) == "3"
    assert notes == []


def test_one_that_is_being_written_holds_up_those_behind_it_for_a_while(tmp_path):
    begin(tmp_path, "1")
    finish(tmp_path, "2")
    notes, names = Notes(), ListedNames(str(tmp_path), unfinished_seconds=3600)
    assert names.after("", notes) is None
    finish(tmp_path, "1")
    assert names.after("", notes) == "1"
    assert notes == []

    begin(tmp_path, "3", "5")
    assert names.after("2", notes) is None  # nothing behind them: no hurry
    finish(tmp_path, "4")
    hurried = ListedNames(str(tmp_path), unfinished_seconds=0)
    assert hurried.after("2", notes) == "4"
    [said] = notes
    assert said.startswith(f"{tmp_path}/3 has had no manifest.json for 0 s, and 4 behind it has")


def test_a_directory_that_is_not_there_has_none_yet(tmp_path):
    assert names_of(str(tmp_path / "later")).after("", Notes()) is None
    assert names_of(str(pathlib.Path("later"))).wanted("") == "a dataset in later"


def test_a_list_does_not_grow():
    with pytest.raises(UserError, match="a list does not grow; name the directory in which"):
        names_of("a,b")


def test_a_dataset_itself_has_none_in_it(tmp_path):
    finish(tmp_path.parent, tmp_path.name)
    with pytest.raises(UserError, match=r"is a dataset itself, .*: name the directory above it"):
        names_of(str(tmp_path))
