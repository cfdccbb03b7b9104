"""Increments of tables without vocabularies: all keys, and the rows that changed."""

import dataclasses
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.checkpoint.keyed import URLS, USERS, Keyed, RowTrainer, hash_of, rows_of, store_of
from tests.checkpoint.saved_state import DATA, save, saver_of
from tests.corruption import flip_bit
from tfps.checkpoint import increments, keyed_rows, keyed_snapshot
from tfps.checkpoint.checkpoint import DamagedCheckpointError
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.keyed_rows import SavedKeyedRows
from tfps.checkpoint.restore import restore, restore_newest
from tfps.errors import UserError
from tfps.job_dir import JobDir

TASK, GROUP = Keyed(), "keys_dim4"
MOST = 0.8  # of a full checkpoint's bytes that an increment may have here


@pytest.fixture(autouse=True)
def small_pieces_fixture(monkeypatch):
    """Groups of any size are held in part, and read in many runs, found in many looks."""
    monkeypatch.setattr(increments, "TRACKED_BYTES", 1)
    monkeypatch.setattr(keyed_snapshot, "CHUNK_BYTES", 6_000)
    monkeypatch.setattr(keyed_rows, "_WINDOW", 8)


@pytest.fixture(name="directory")
def directory_fixture(tmp_path):
    return CheckpointDirectory(JobDir(tmp_path))


@pytest.fixture(name="trained")
def trained_fixture():
    """Full of keys, each table's."""
    trainer = RowTrainer(store_of(TASK))
    for table in (USERS, URLS):
        trainer.train(table, np.arange(300) * 7)
    trainer.train(USERS, [0])
    return trainer


def tensor(checkpoint, name):
    return tf.train.load_variable(f"{checkpoint.path}/parameters", f"{GROUP}/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
def test_keys_rows_and_slots_of_an_increment_are_restored_bit_for_bit(trained, directory, parts):
    store = trained.store
    with saver_of(directory, store, largest_increment=MOST) as saver:
        full = save(saver, 0)
        before = rows_of(store)
        trained.train(USERS, np.arange(20) * 7)
        trained.train(USERS, 10**12 + np.arange(150))  # of which 50 need the rows of others
        saved = save(saver, 1)
        changed_by_table = saver.report().touched_by_table
    after = rows_of(store)
    evicted, admitted = before.keys() - after.keys(), after.keys() - before.keys()
    changed = {key for key in after if after[key] != before.get(key)}
    assert len(admitted) == 150
    assert len(evicted) >= 50
    assert (full.increment, saved.increment.base) == (None, full.base)
    assert saved.increment.tensors == (GROUP,)
    assert {key for _, key in after} == set(tensor(saved, "hashes").tolist())
    assert {key for _, key in changed} <= set(tensor(saved, "changed/hashes").tolist())
    # The update before the base was saved is held once more.
    assert len(tensor(saved, "changed/hashes")) <= len(changed) + 1
    assert sum(changed_by_table.values()) == len(tensor(saved, "changed/hashes"))
    other = store_of(TASK, parts)
    RowTrainer(other).train(USERS, np.arange(50))
    restored, passed_over = restore_newest(directory, other, DATA)
    assert (restored, passed_over) == (saved, {})
    assert rows_of(other) == after
    assert other.steps() == store.steps()


@pytest.mark.slow
def test_it_holds_few_rows_where_few_have_changed(trained, directory):
    with saver_of(directory, trained.store, largest_increment=MOST) as saver:
        full = save(saver, 0)
        trained.train(URLS, [7, 14])
        saved = save(saver, 1)
    assert set(tensor(saved, "changed/hashes").tolist()) == {
        hash_of(trained.store, *each)[1] for each in ((USERS, 0), (URLS, 7), (URLS, 14))
    }
    assert full.size - saved.size > 590 * 50  # of 600 rows of 48 bytes, and 12 of their records


@pytest.mark.slow
def test_keys_that_were_forgotten_are_gone_after_a_restore(trained, directory):
    store = trained.store
    with saver_of(directory, store, largest_increment=2.0) as saver:  # a full one is smaller
        save(saver, 0)
        trained.train(USERS, np.arange(30) * 7)
        [group] = store.keyed_groups
        group.forget(store.steps())
        saved = save(saver, 1)
    assert saved.increment
    assert len(rows_of(store)) == 30
    other = store_of(TASK, 3)
    restore(saved, other, DATA)
    assert rows_of(other) == rows_of(store)


@pytest.mark.slow
def test_a_run_that_was_restored_goes_on_with_the_same_base(trained, directory):
    with saver_of(directory, trained.store, largest_increment=MOST) as saver:
        full = save(saver, 0)
        trained.train(USERS, [0])
        saved = save(saver, 1)
    other = RowTrainer(store_of(TASK, 3))
    restore(saved, other.store, DATA)
    with saver_of(directory, other.store, largest_increment=MOST) as saver:
        saver.resume_from(saved)
        other.train(URLS, [7])
        later = save(saver, 2)
    assert later.increment.base == full.base
    third = store_of(TASK, 1)
    restore(later, third, DATA)
    assert rows_of(third) == rows_of(other.store)


@pytest.mark.slow
def test_what_would_be_too_large_is_full(trained, directory):
    with saver_of(directory, trained.store, largest_increment=0.5) as saver:
        save(saver, 0)
        trained.train(USERS, np.arange(300) * 7)
        assert save(saver, 1).increment is None


@pytest.mark.slow
def test_small_groups_are_held_whole(trained, directory, monkeypatch):
    monkeypatch.setattr(increments, "TRACKED_BYTES", 16 << 20)
    with saver_of(directory, trained.store, largest_increment=2.0) as saver:
        save(saver, 0)
        assert save(saver, 1).increment is None


@pytest.fixture(name="saved")
def saved_fixture(trained, directory):
    """A full checkpoint and an increment of it, and what the full one held."""
    with saver_of(directory, trained.store, largest_increment=MOST) as saver:
        full, held = save(saver, 0), rows_of(trained.store)
        trained.train(USERS, [0, 7])
        return full, save(saver, 1), held


def spoil(checkpoint):
    """Changes a bit in the middle of each file; some of a base are of no use to an increment."""
    for file in pathlib.Path(checkpoint.path).glob("parameters.data-*"):
        flip_bit(file, file.stat().st_size // 2)


@pytest.mark.slow
def test_damage_is_told_and_passed_over(saved, directory, caplog):
    full, increment, held = saved
    spoil(increment)
    other = store_of(TASK, 3)
    restored, passed_over = restore_newest(directory, other, DATA)
    assert restored == full
    assert rows_of(other) == held
    assert re.search("parameters.data-.* was altered", passed_over[increment.path])
    assert f"checkpoint {increment.path} is damaged and is passed over" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda base: spoil(base), "its base .* is damaged: parameters.data-.* was altered"),
        (lambda base: shutil.rmtree(base.path), "its base .* is missing"),
    ],
)
def test_damage_of_its_base_is_its_own(saved, directory, damage, why):
    full, increment, _ = saved
    damage(full)
    with pytest.raises(UserError, match=rf"is damaged \({increment.name}: {why}"):
        restore_newest(directory, store_of(TASK), DATA)


@pytest.mark.slow
def test_rows_that_neither_it_nor_its_base_holds_are_damage(saved, trained, directory):
    increment = saved[1]
    with saver_of(directory, trained.store, largest_increment=MOST) as saver:
        trained.train(USERS, 10**12 + np.arange(5))
        later = save(saver, 3, is_full=True)
    # An increment whose keys are those of another state.
    layout = trained.store.keyed_groups[0].layout
    mixed = dataclasses.replace(later, increment=increment.increment)
    rows = SavedKeyedRows(mixed, layout, trained.store.keyed_groups[0].row)
    runs = rows.runs(0, rows.total)
    with pytest.raises(DamagedCheckpointError, match="rows of keys_dim4 are neither in it nor in"):
        [rows.read("/device:CPU:0", *run) for run in runs]
