"""Checkpoints that hold only the rows that were touched since the last full one."""

import dataclasses
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke, get_config
from tests.checkpoint.saved_state import (
    DATA,
    PATIENCE,
    Gate,
    assert_equal,
    save,
    saver_of,
    train,
    whole,
)
from tests.training_fixtures import Trainer
from tfps.checkpoint import increments
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart, restore, restore_newest
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.store import partitioned_variable
from trainer.datasets.generation import generate

TASK = Smoke(vocabulary=25_000, dim=64)  # 20 MB with Adam's slots
TABLE = "tables_dim64"
RECORDS = 600


@pytest.fixture(name="manifest", scope="module")
def manifest_fixture(tmp_path_factory):
    config = dataclasses.replace(get_config(), task=TASK)
    directory = str(tmp_path_factory.mktemp("data"))
    return generate(config, directory, RECORDS, 2, 0, 0, "smoke", False)


@pytest.fixture(name="trainer", scope="module")
def trainer_fixture(manifest):
    return Trainer(manifest, task=TASK)


@pytest.fixture(name="second", scope="module")
def second_fixture(manifest):
    """Another run on 3 ps, which each test restores first."""
    return Trainer(manifest, task=TASK, parts=3, seed=9)


@pytest.fixture(name="others", scope="module")
def others_fixture(manifest, second):
    """Stores to restore to, by number of ps; each test overwrites all that they hold."""
    return {1: Trainer(manifest, task=TASK, parts=1, seed=9).store, 3: second.store}


@pytest.fixture(name="directory")
def directory_fixture(tmp_path):
    return CheckpointDirectory(JobDir(tmp_path))


def test_an_increment_holds_what_was_touched_since_the_last_full_one(trainer, directory):
    with saver_of(directory, trainer.store) as saver:
        full = save(saver, 0)
        before = whole(trainer.store)[TABLE].reshape(-1, 3 * 64)
        train(trainer, 0)
        changed = np.flatnonzero((whole(trainer.store)[TABLE].reshape(-1, 3 * 64) != before).any(1))
        first = save(saver, 1)
        train(trainer, 1)  # the same rows again
        second = save(saver, 2)
        assert saver.report().increments == 2
        assert saver.report().touched_rows == len(changed)
        by_table = saver.report().touched_by_table
        assert sum(by_table.values()) == len(changed)
        [group] = trainer.store.layout.groups
        assert list(by_table) == [table.name for table in group.layout.tables]
    assert full.increment is None
    assert first.increment.base == second.increment.base == full.base
    assert first.increment.tensors == (TABLE,)
    assert RECORDS / 3 < len(changed) <= RECORDS
    for each in (first, second):
        assert each.increment.touched(TABLE) == len(changed)
        numbers = tf.train.load_variable(f"{each.path}/parameters", f"{TABLE}/touched")
        np.testing.assert_array_equal(numbers, changed)
    assert first.size < full.size / 20
    assert [directory.latest(), directory.find(full.name)] == [second, full]


@pytest.mark.parametrize(
    ("chunk_bytes", "runs"),
    [pytest.param(increments.CHUNK_BYTES, 2, marks=pytest.mark.slow), (100_000, 3)],
)
def test_it_is_restored_with_its_base_onto_any_number_of_ps(
    trainer, others, directory, chunk_bytes, runs, monkeypatch
):
    monkeypatch.setattr(increments, "CHUNK_BYTES", chunk_bytes)
    with saver_of(directory, trainer.store) as saver:
        save(saver, 0)
        train(trainer, 0)
        saved = save(saver, 1)
    assert len(saved.increment.runs) >= runs
    for other in others.values():
        restored, passed_over = restore_newest(directory, other, DATA)
        assert (restored, passed_over) == (saved, {})
        assert_equal(whole(trainer.store), whole(other))
        assert other.steps() == trainer.store.steps() > 0


@pytest.mark.slow
def test_a_layer_is_taken_of_an_increment_with_its_base(
    trainer, others, directory, tmp_path, monkeypatch
):
    monkeypatch.setattr(partitioned_variable, "CHUNK_BYTES", 3_000_000)
    with saver_of(directory, trainer.store) as saver:
        save(saver, 0)
        train(trainer, 0)
        saved = save(saver, 1)
    for other in others.values():
        assert WarmStart(str(tmp_path), ("token_table",)).begin(other) == saved
        found, theirs = other.read_table(0), trainer.store.read_table(0)
        np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_after_a_restore_increments_resume_from_the_same_base(trainer, second, others, directory):
    with saver_of(directory, trainer.store) as saver:
        full = save(saver, 0)
        train(trainer, 0)
        saved = save(saver, 1)
    restore(saved, second.store, DATA)
    with saver_of(directory, second.store) as saver:
        saver.resume_from(saved)
        nothing_more = save(saver, 2)
        assert nothing_more.increment.touched(TABLE) == saved.increment.touched(TABLE)
        train(second, 2)
        later = save(saver, 3)
    assert nothing_more.increment.base == later.increment.base == full.base
    restore(later, others[1], DATA)
    assert_equal(whole(second.store), whole(others[1]))


@pytest.mark.quick("True")
@pytest.mark.parametrize("first_is_full", [True, False])
def test_rows_touched_during_a_save_are_in_the_next_one_only(
    trainer, others, directory, first_is_full
):
    with saver_of(directory, trainer.store) as saver:
        base = save(saver, 0)
        train(trainer, 0)
        before, gate, committed = whole(trainer.store), Gate(), []
        saver.begin(QueueState(1), DATA, gate, committed.append, first_is_full)
        train(trainer, 1)
        assert gate.reached.wait(PATIENCE)
        gate.opened.set()
        saver.finish()
        after, later = whole(trainer.store), save(saver, 2)
    assert (committed[0].increment is None) == first_is_full
    assert later.increment.base == (committed[0].base if first_is_full else base.base)
    for checkpoint, values in ((committed[0], before), (later, after)):
        restore(checkpoint, others[1], DATA)
        assert_equal(values, whole(others[1]))


def test_a_save_that_training_waits_for_may_be_an_increment(trainer, others, directory):
    with saver_of(directory, trainer.store, in_background=False) as saver:
        save(saver, 0)
        train(trainer, 0)
        saved = save(saver, 1)
    assert saved.increment
    restore(saved, others[1], DATA)
    assert_equal(whole(trainer.store), whole(others[1]))


@pytest.mark.slow
def test_what_would_be_too_large_or_must_be_full_is_full_and_the_next_builds_on_it(
    trainer, directory
):
    with saver_of(directory, trainer.store, largest_increment=0.1) as saver:
        assert save(saver, 0).increment is None  # the first
        train(trainer, 0)
        first = save(saver, 1)
        assert first.increment
        train(trainer, 1)
        asked_for = save(saver, 2, is_full=True)
        assert asked_for.increment is None
        train(trainer, 2)
        assert save(saver, 3).increment.base == asked_for.base
    half = first.size / asked_for.size / 2
    with saver_of(directory, trainer.store, largest_increment=half) as saver:
        saver.resume_from(asked_for)
        train(trainer, 3)
        assert save(saver, 4).increment is None


def test_small_tables_are_always_written_whole(tmp_path, trainer):
    small = Trainer(trainer.manifest, task=Smoke(vocabulary=25_000))
    with saver_of(CheckpointDirectory(JobDir(tmp_path)), small.store) as saver:
        for epoch in range(2):
            assert save(saver, epoch).increment is None


@pytest.fixture(name="written", scope="module")
def written_fixture(trainer, tmp_path_factory):
    """A full checkpoint with an increment, and another with two: where they are, what each held."""
    path, held = tmp_path_factory.mktemp("written"), {}
    directory = CheckpointDirectory(JobDir(path))
    with saver_of(directory, trainer.store) as saver:
        for epoch, is_full in enumerate((True, False, True, False, False)):
            train(trainer, epoch)
            held[save(saver, epoch, is_full).name] = whole(trainer.store)
    return path / "checkpoints", held


@pytest.fixture(name="saved")
def saved_fixture(written, trainer, directory, tmp_path):
    """Copies of them, and what each held; the trainer holds what the last one does."""
    path, held = written
    shutil.copytree(path, tmp_path / "checkpoints", dirs_exist_ok=True)
    found = [(directory.find(name), values) for name, values in held.items()]
    restore(found[-1][0], trainer.store, DATA)
    return found


def spoil(path):
    """Flips a byte in the middle of the largest file."""
    name = max(path.glob("parameters.data-*"), key=lambda file: file.stat().st_size)
    content = bytearray(name.read_bytes())
    content[len(content) // 2] ^= 0x10
    name.write_bytes(content)


@pytest.mark.quick("4-spoil*", "2-rmtree*")
@pytest.mark.parametrize(
    ("damaged", "damage", "left", "why"),
    [
        (4, spoil, 3, "parameters.data-.* was altered"),
        (2, spoil, 1, "its base .* is damaged: parameters.data-.* was altered"),
        (2, shutil.rmtree, 1, "its base .* is missing"),
        (
            2,
            lambda path: (path / "commit.json").write_text("{}"),
            1,
            "its base .* is damaged: commit.json was altered",
        ),
    ],
)
def test_damage_of_an_increment_or_its_base_is_told_and_passed_over(
    saved, directory, trainer, tmp_path, damaged, damage, left, why, caplog
):
    damage(tmp_path / "checkpoints" / saved[damaged][0].name)
    with caplog.at_level("WARNING"):
        restored, passed_over = restore_newest(directory, trainer.store, DATA)
    expected, values = saved[left]
    assert restored == expected
    assert_equal(values, whole(trainer.store))
    newest = saved[4][0].path
    assert next(iter(passed_over)) == newest
    assert f"checkpoint {newest} is damaged and is passed over: " in caplog.text
    assert re.search(why, passed_over[newest])
    again, passed_over = restore_newest(directory, trainer.store, DATA)
    assert (again, passed_over) == (restored, {})


def test_a_base_that_was_replaced_is_not_taken_for_the_right_one(saved, directory, trainer):
    base = saved[2][0]
    shutil.rmtree(base.path)
    with saver_of(directory, trainer.store) as saver:
        replaced = save(saver, 2, is_full=True)
    shutil.move(replaced.path, base.path)
    restored, passed_over = restore_newest(directory, trainer.store, DATA)
    assert restored.name == base.name
    assert "was replaced by another checkpoint of that name" in passed_over[saved[4][0].path]


def test_retention_keeps_the_base_and_one_of_another(saved, tmp_path, trainer):
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, trainer.store, last=2) as saver:
        saver.resume_from(saved[4][0])
        train(trainer, 5)
        last = save(saver, 5)
    first, other, base, _, newest = (checkpoint.name for checkpoint, _ in saved)
    assert directory.names() == [first, other, base, newest, last.name]
