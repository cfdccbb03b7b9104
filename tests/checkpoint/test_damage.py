"""Checkpoints whose files were changed: found when they are read, told of, and passed over."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from tests.checkpoint.saved_state import DATA, values
from tests.corruption import flip_bit
from tests.training_fixtures import save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore, restore_newest
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.storage import files

NEWEST = "000000000000-000002-000000000000"


@pytest.fixture(name="whole", scope="module")
def whole_fixture(trainer, tmp_path_factory):
    """A job's directory with two checkpoints of different values; the values of the older one."""
    job_dir = tmp_path_factory.mktemp("whole")
    directory = CheckpointDirectory(JobDir(job_dir))
    save(directory, trainer.store, QueueState(epoch=1), DATA)
    older = values(trainer.store)
    for slice_ in trainer.store.slices():
        slice_.variable.assign_add(np.ones(slice_.variable.shape, np.float32))
    save(directory, trainer.store, QueueState(epoch=2), DATA)
    return job_dir, older


@pytest.fixture
def saved(whole, tmp_path):
    """A copy of both; the values of the older one."""
    job_dir, older = whole
    shutil.copytree(job_dir, tmp_path, dirs_exist_ok=True)
    return CheckpointDirectory(JobDir(tmp_path)), older


def every_byte(name):
    """Flips one byte, wherever it is: in the middle, at both ends."""
    return [
        pytest.param(lambda d, k=k: flip_bit(d / name, k), id=f"{name} byte {k}")
        for k in (0, 100, -60, -1)
    ]


def truncate(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


def edit(path):
    """What a person might do: JSON as good as before, with another number in it."""
    fields = json.loads(path.read_text())
    fields["queue"]["cursor"] += 1
    path.write_text(json.dumps(fields))


def name_path(path):
    """What a forger might do: a file elsewhere, under a checksum that is right."""
    fields = json.loads(path.read_text())
    fields["files"][0]["name"] = "../../secret"
    del fields["crc32c"]
    crc32c = files.checksum_of(json.dumps(fields, sort_keys=True).encode())
    path.write_text(json.dumps({**fields, "crc32c": crc32c}))


VALUES = "parameters.data-00000-of-00001"
DAMAGE = [
    *every_byte(VALUES),
    *every_byte("parameters.index"),
    *every_byte("commit.json"),
    pytest.param(lambda d: name_path(d / "commit.json"), id="path in commit.json"),
    pytest.param(lambda d: truncate(d / VALUES, 100), id="truncated values"),
    pytest.param(lambda d: truncate(d / VALUES, 0), id="empty values"),
    pytest.param(lambda d: truncate(d / "parameters.index", 100), id="truncated index"),
    pytest.param(lambda d: truncate(d / "commit.json", 0), id="empty marker"),
    pytest.param(lambda d: edit(d / "commit.json"), id="edited marker"),
    pytest.param(lambda d: (d / "commit.json").write_text("[]"), id="marker of a list"),
    pytest.param(lambda d: (d / VALUES).unlink(), id="missing values"),
    pytest.param(lambda d: (d / "parameters.index").unlink(), id="missing index"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_loudly(saved, trainer, tmp_path, damage, caplog):
    directory, older = saved
    newest = tmp_path / "checkpoints" / NEWEST
    damage(newest)
    with caplog.at_level("WARNING"):
        restored, passed_over = restore_newest(directory, trainer.store, DATA)
    assert restored.queue == QueueState(epoch=1)
    for was, now in zip(older, values(trainer.store), strict=True):
        np.testing.assert_array_equal(was, now)
    assert list(passed_over) == [str(newest)]
    assert any(name in passed_over[str(newest)] for name in ("parameters.", "commit.json"))
    assert f"{newest} is damaged and is passed over: {passed_over[str(newest)]}" in caplog.text
    # It is kept, and never looked at again.
    assert not newest.exists()
    assert newest.with_name(f"{NEWEST}.damaged-1").is_dir()
    caplog.clear()
    again, passed_over = restore_newest(directory, trainer.store, DATA)
    assert (again, passed_over) == (restored, {})
    assert f"damaged checkpoints are kept; delete them in time: {newest}.damaged-1" in caplog.text


def test_the_file_is_named(saved, trainer, tmp_path):
    directory, _ = saved
    flip_bit(tmp_path / "checkpoints" / NEWEST / VALUES, 50)
    _, passed_over = restore_newest(directory, trainer.store, DATA)
    [why] = passed_over.values()
    assert why.startswith(f"{VALUES} was altered (")


def test_a_second_damaged_one_of_the_same_name_is_kept_too(saved, trainer, tmp_path):
    directory, _ = saved
    for _ in range(2):
        (tmp_path / "checkpoints" / NEWEST / VALUES).unlink()
        restore_newest(directory, trainer.store, DATA)
        save(directory, trainer.store, QueueState(epoch=2), DATA)
    names = [path.name for path in sorted((tmp_path / "checkpoints").iterdir())]
    assert names[-3:] == [NEWEST, f"{NEWEST}.damaged-1", f"{NEWEST}.damaged-2"]


def test_when_all_are_damaged_the_run_is_refused_each_time(saved, trainer, tmp_path):
    directory, _ = saved
    paths = sorted((tmp_path / "checkpoints").iterdir())
    (paths[0] / VALUES).unlink()
    (paths[1] / "commit.json").write_text("{")
    for _ in range(2):
        with pytest.raises(UserError, match=r"every checkpoint in .* is damaged") as raised:
            restore_newest(directory, trainer.store, DATA)
        assert f"{paths[0].name}: {VALUES} is missing" in str(raised.value)
        assert f"{paths[1].name}: commit.json is no JSON" in str(raised.value)
        assert "delete them to train from the beginning" in str(raised.value)
    assert sorted((tmp_path / "checkpoints").iterdir()) == paths


def test_a_job_whose_last_whole_checkpoint_was_deleted_does_not_begin_anew(
    saved, trainer, tmp_path
):
    directory, _ = saved
    older, newest = sorted((tmp_path / "checkpoints").iterdir())
    (newest / VALUES).unlink()
    restore_newest(directory, trainer.store, DATA)
    for file in older.iterdir():
        file.unlink()
    older.rmdir()
    with pytest.raises(UserError, match=rf"{NEWEST}\.damaged-1: found before"):
        restore_newest(directory, trainer.store, DATA)


def test_a_checkpoint_that_does_not_fit_is_an_error_whatever_is_older(saved, trainer):
    directory, _ = saved
    with pytest.raises(UserError, match="train data records was 100, is 5"):
        restore_newest(directory, trainer.store, [{"records": 5}])


def test_a_checkpoint_of_another_version_is_no_damage(saved, trainer, tmp_path):
    directory, _ = saved
    path = tmp_path / "checkpoints" / NEWEST / "commit.json"
    marker = {"format": 5}
    marker["crc32c"] = files.checksum_of(json.dumps(marker).encode())
    path.write_text(json.dumps(marker))
    with pytest.raises(UserError, match=r"format 5, this version of tfps reads 6; continue with"):
        restore_newest(directory, trainer.store, DATA)
    assert path.exists()


def test_a_ps_that_does_not_see_the_files_says_so(saved, trainer, tmp_path):
    """Not damage: the chief has just seen them."""
    directory, _ = saved
    store = trainer.store
    index = tmp_path / "checkpoints" / NEWEST / "parameters.index"

    class Vanishing:
        """A store whose slices are asked for when the files were seen."""

        signature, layout = staticmethod(store.signature), store.layout

        @staticmethod
        def slices():
            index.rename(index.with_suffix(".away"))
            return store.slices()

    with pytest.raises(UserError, match="there for the chief, but not for /device:CPU:0"):
        restore(directory.latest(), Vanishing(), DATA)
    assert pathlib.Path(index.with_suffix(".away")).exists()
