"""Saves beside training: what they hold, what they cost, how they fail."""

import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.checkpoint.saved_state import DATA, PATIENCE, Gate, saver_of, train, values
from tests.training_fixtures import Trainer
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.checkpoint.writer import TURN_BYTES
from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.store.partitioned_variable import CHUNK_BYTES

LARGE = Smoke(vocabulary=80_000, dim=256)
LARGE_BYTES = 80_000 * 256 * 3 * 4  # 246 MB with Adam's slots


def test_a_save_in_the_background_holds_what_was_there_when_it_began(trainer, tmp_path):
    train(trainer, 0)
    directory = CheckpointDirectory(JobDir(tmp_path))
    committed, gate = [], Gate()
    with saver_of(directory, trainer.store) as saver:
        before = values(trainer.store)
        saver.begin(QueueState(1), DATA, gate, committed.append)
        train(trainer, 1)
        assert any(
            (was != now).any() for was, now in zip(before, values(trainer.store), strict=True)
        )
        assert gate.reached.wait(PATIENCE)
        saver.poll()
        assert committed == []
        assert directory.latest() is None
        gate.opened.set()
        saver.finish()
        saver.finish()
    assert committed == [directory.latest()]
    assert committed[0].steps < trainer.steps()
    restore(committed[0], trainer.store, DATA)
    for was, now in zip(before, values(trainer.store), strict=True):
        np.testing.assert_array_equal(was, now)
    report = saver.report()
    assert (report.saved, report.bytes) == (1, committed[0].size)
    assert 0 < report.stopped_seconds < report.write_seconds


def test_a_save_that_training_waits_for_is_over_when_it_has_begun(trainer, tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    committed = []
    with saver_of(directory, trainer.store, in_background=False) as saver:
        saver.begin(QueueState(), DATA, lambda: None, committed.append)
        assert directory.latest() is not None
        saver.poll()
    assert committed == [directory.latest()]
    report = saver.report()
    assert report.stopped_seconds >= report.write_seconds > 0


def refuse():
    raise RunError("a shard was replaced")


def test_an_error_is_raised_by_what_asks_next(trainer, tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, trainer.store) as saver:
        saver.begin(QueueState(), DATA, refuse, lambda checkpoint: None)
        with pytest.raises(RunError, match="a shard was replaced"):
            saver.finish()
        saver.finish()  # told once
    assert directory.latest() is None


def begin_and_raise(saver, before_commit, after_commit, error):
    with saver:
        saver.begin(QueueState(), DATA, before_commit, after_commit)
        raise error


def test_a_run_that_fails_keeps_the_save_under_way(trainer, tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    saver, committed = saver_of(directory, trainer.store), []
    with pytest.raises(RunError, match="the loss"):
        begin_and_raise(saver, lambda: None, committed.append, RunError("the loss"))
    assert committed == [directory.latest()]


def test_a_run_that_fails_tells_of_a_save_that_fails_too(trainer, tmp_path, caplog):
    saver = saver_of(CheckpointDirectory(JobDir(tmp_path)), trainer.store)
    with pytest.raises(RunError, match="the loss"):
        begin_and_raise(saver, refuse, print, RunError("the loss"))
    assert "the checkpoint that was being saved is lost: a shard was replaced" in caplog.text


def test_a_run_that_is_stopped_commits_nothing_any_more(trainer, tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    saver, gate = saver_of(directory, trainer.store), Gate()
    with pytest.raises(KeyboardInterrupt):
        begin_and_raise(saver, gate, print, KeyboardInterrupt())
    gate.opened.set()
    with pytest.raises(RunError, match="the run has ended without it"):
        saver.finish()
    assert directory.latest() is None


@pytest.mark.slow
def test_what_is_written_in_turns_is_restored_whole(manifest, tmp_path):
    trainer = Trainer(manifest, task=LARGE)
    train(trainer, 0)
    before = values(trainer.store)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, trainer.store) as saver:
        saver.begin(QueueState(1), DATA, lambda: None, print)
        saver.finish()
    written = directory.latest()
    data = [file for file in written.files if ".data-" in file.name]
    assert len(data) == 1 + LARGE_BYTES // TURN_BYTES
    for slice_ in trainer.store.slices():
        slice_.variable.assign(tf.zeros_like(slice_.variable))
    restore(written, trainer.store, DATA)
    for was, now in zip(before, values(trainer.store), strict=True):
        np.testing.assert_array_equal(was, now)


def resident():
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_the_second_copy_is_made_by_the_first_update_and_used_again_by_later_saves(
    manifest, tmp_path
):
    """TensorFlow keeps what is freed for itself: so it shows in that nothing more is taken."""
    trainer = Trainer(manifest, task=LARGE)
    train(trainer, 0)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, trainer.store, last=1) as saver:
        start = resident()
        for epoch in range(1, 4):
            gate = Gate()
            saver.begin(QueueState(epoch), DATA, gate, print)
            assert gate.reached.wait(PATIENCE)
            if epoch == 1:
                assert resident() < start + 3 * CHUNK_BYTES
            train(trainer, epoch)
            gate.opened.set()
            saver.finish()
            assert resident() < start + LARGE_BYTES + 3 * CHUNK_BYTES
